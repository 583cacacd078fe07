#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace millrace {

/// Bounds what waits, in requests and in a size of theirs: prompt tokens (of all choices) for a device, bytes for the tokenizer.
class Admission {
public:
  Admission(int64_t max_size, int32_t max_requests) : max_size_(max_size), max_requests_(max_requests) {}

  /// Whether a request of this size may wait, too. Where nothing waits, any may.
  bool admits(int64_t size) const {
    return (size_ == 0 || size_ + size <= max_size_) && requests_ < max_requests_;
  }
  /// When to try again after a refusal: as long as the request waited that ran last, within 100 ms and 60 s.
  std::chrono::milliseconds retry_after() const {
    using std::chrono::milliseconds;
    return std::clamp(std::chrono::ceil<milliseconds>(last_wait_), milliseconds{100}, milliseconds{60'000});
  }

  void add_request() { ++requests_; }
  void remove_request() { --requests_; }
  void add_size(int64_t size) { size_ += size; }
  void remove_size(int64_t size) { size_ -= size; }
  void note_wait(std::chrono::nanoseconds wait) { last_wait_ = wait; }

  int64_t size() const { return size_; }
  int32_t requests() const { return requests_; }

private:
  int64_t max_size_;
  int32_t max_requests_;
  int64_t size_ = 0;
  int32_t requests_ = 0;
  std::chrono::nanoseconds last_wait_{0};
};

} // namespace millrace
