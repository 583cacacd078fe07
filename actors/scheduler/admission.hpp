#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

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

/// How long what waits will wait, from how fast it was served lately, in prompt tokens.
class QueueWait {
public:
  using Time = std::chrono::steady_clock::time_point;

  /// A prompt of so many tokens was begun.
  void note_start(int64_t tokens, Time now) {
    served_ += tokens;
    starts_.push_back({now, served_});
    if (starts_.size() > kStarts)
      starts_.pop_front();
  }
  /// Nothing waits: the time until something does says nothing of the service.
  void forget() { starts_.clear(); }
  /// Until so many tokens have been served; nullopt while too little is known.
  std::optional<std::chrono::nanoseconds> until(int64_t tokens) const {
    if (starts_.size() < kEnough)
      return std::nullopt;
    const auto time = starts_.back().time - starts_.front().time;
    const int64_t served = starts_.back().served - starts_.front().served;
    if (served <= 0)
      return std::nullopt;
    return std::chrono::nanoseconds(int64_t(double(time.count()) / double(served) * double(tokens)));
  }

private:
  static constexpr size_t kStarts = 64, kEnough = 8;
  struct Start {
    Time time;
    int64_t served; // up to and with this one
  };
  std::deque<Start> starts_;
  int64_t served_ = 0;
};

} // namespace millrace
