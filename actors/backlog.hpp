#pragma once

#include "actors/scheduler/admission.hpp"
#include "messages/generation.hpp"

#include <chrono>
#include <deque>
#include <mutex>

namespace millrace {

/// Bounds what waits for the tokenizer, in bytes of prompt and in requests: first in, first out. Thread-safe.
class Backlog {
public:
  using Time = std::chrono::steady_clock::time_point;

  Backlog(int64_t max_bytes, int32_t max_requests) : admission_(max_bytes, max_requests) {}

  /// False if it is full. Where nothing waits, any request may enter.
  bool enter(const Generate& request, Time now = std::chrono::steady_clock::now()) {
    std::lock_guard lock{mutex_};
    const int64_t size = bytes(request);
    if (!admission_.admits(size))
      return false;
    admission_.add_request();
    admission_.add_size(size);
    entered_.push_back(now);
    return true;
  }
  /// A request that had entered, as it was then.
  void leave(const Generate& request, Time now = std::chrono::steady_clock::now()) {
    std::lock_guard lock{mutex_};
    admission_.remove_request();
    admission_.remove_size(bytes(request));
    admission_.note_wait(now - entered_.front());
    entered_.pop_front();
  }
  /// When to try again after a refusal: as long as the request waited that left last.
  std::chrono::milliseconds retry_after() const {
    std::lock_guard lock{mutex_};
    return admission_.retry_after();
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

  mutable std::mutex mutex_;
  Admission admission_; // of bytes
  std::deque<Time> entered_;
};

} // namespace millrace
