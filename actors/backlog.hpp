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
    const auto size = [](const std::optional<std::string>& text) { return text ? text->size() : 0; };
    size_t sum = size(request.prompt) + size(request.tools) + size(request.template_arguments);
    if (request.prompt_ids)
      sum += request.prompt_ids->size() * sizeof(TokenId);
    if (request.messages)
      for (const ChatMessage& message : *request.messages)
        sum += sizeof(ChatMessage) + message.role.size() + message.content.size() + size(message.name) +
               size(message.tool_call_id) + size(message.tool_calls);
    return int64_t(sum);
  }

  int64_t max_bytes_;
  int32_t max_requests_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<int32_t> requests_{0};
};

} // namespace millrace
