#pragma once

#include "messages/generation.hpp"

#include <atomic>
#include <cstdint>

namespace millrace {

/// Bounds what waits for the tokenizer, in bytes of prompt and in requests. Thread-safe.
class Backlog {
public:
  Backlog(int64_t max_bytes, int32_t max_requests) : max_bytes_(max_bytes), max_requests_(max_requests) {}

  /// False if it is full. Where nothing waits, any request may enter.
  bool enter(const Generate& request) {
    const int64_t size = bytes(request);
    const int64_t before = bytes_.fetch_add(size);
    const bool fits = before == 0 || before + size <= max_bytes_;
    if (requests_.fetch_add(1) < max_requests_ && fits)
      return true;
    leave(request);
    return false;
  }
  /// A request that had entered, as it was then.
  void leave(const Generate& request) {
    bytes_ -= bytes(request);
    --requests_;
  }

private:
  static int64_t bytes(const Generate& request) {
    return int64_t((request.prompt ? request.prompt->size() : 0) +
                   (request.prompt_ids ? request.prompt_ids->size() * sizeof(TokenId) : 0));
  }

  int64_t max_bytes_;
  int32_t max_requests_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<int32_t> requests_{0};
};

} // namespace millrace
