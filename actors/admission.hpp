#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace millrace {

/// Bounds what waits for a device, in prompt tokens (of all choices) and in requests.
class Admission {
public:
  Admission(int64_t max_tokens, int32_t max_requests) : max_tokens_(max_tokens), max_requests_(max_requests) {}

  /// Whether a request of so many tokens may wait, too. Where nothing waits, any may.
  bool admits(int64_t tokens) const {
    return (tokens_ == 0 || tokens_ + tokens <= max_tokens_) && requests_ < max_requests_;
  }
  /// When to try again after a refusal: as long as the request waited that ran last, within 100 ms and 60 s.
  std::chrono::milliseconds retry_after() const {
    using std::chrono::milliseconds;
    return std::clamp(std::chrono::ceil<milliseconds>(last_wait_), milliseconds{100}, milliseconds{60'000});
  }

  void add_request() { ++requests_; }
  void remove_request() { --requests_; }
  void add_tokens(int64_t tokens) { tokens_ += tokens; }
  void remove_tokens(int64_t tokens) { tokens_ -= tokens; }
  void note_wait(std::chrono::nanoseconds wait) { last_wait_ = wait; }

  int64_t tokens() const { return tokens_; }
  int32_t requests() const { return requests_; }

private:
  int64_t max_tokens_;
  int32_t max_requests_;
  int64_t tokens_ = 0;
  int32_t requests_ = 0;
  std::chrono::nanoseconds last_wait_{0};
};

} // namespace millrace
