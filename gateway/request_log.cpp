#include "gateway/request_log.hpp"

#include <utility>
#include <variant>
#include <vector>

namespace millrace {
namespace {

constexpr size_t kPromptBytes = 4096; // of a line

RequestTrail trail_of(const StreamId& stream, const Principal& who, const Origin& origin) {
  return {.stream = to_hex(stream).substr(0, 8),
          .origin = origin,
          .principal = who.name,
          .reasons = {},
          .error = {}};
}

std::vector<LogField> fields_of(const RequestTrail& trail) {
  return {{"stream", trail.stream},
          {"request_id", trail.origin.request_id},
          {"door", trail.origin.door},
          {"principal", trail.principal}};
}

/// What a person would call the prompt.
std::string prompt_text(const Generate& request) {
  if (request.prompt)
    return *request.prompt;
  std::string text;
  if (request.prompt_ids) {
    for (const TokenId id : *request.prompt_ids)
      if (text.size() <= kPromptBytes)
        text.append(text.empty() ? "" : " ").append(std::to_string(id));
  } else if (request.messages) {
    for (const ChatMessage& message : *request.messages)
      text.append(text.empty() ? "" : "\n").append(message.role).append(": ").append(message.content);
  }
  return text;
}

} // namespace

void RequestLog::opened(const Generate& request, const Principal& who, const Origin& origin,
                        RequestTrail& trail) {
  trail = trail_of(request.request, who, origin);
  if (!log_->writes(LogLevel::info))
    return;
  auto fields = fields_of(trail);
  fields.push_back({"choices", int64_t{request.n}});
  if (request.max_tokens)
    fields.push_back({"max_tokens", int64_t{*request.max_tokens}});
  const std::string prompt = prompts_ ? prompt_text(request) : std::string();
  fields.push_back({"prompt", std::string_view(prompt), kPromptBytes});
  log_->write(LogLevel::info, "opened", fields);
}

void RequestLog::joined(const StreamId& stream, const Principal& who, const Origin& origin) {
  log_->write(LogLevel::info, "joined", fields_of(trail_of(stream, who, origin)));
}

void RequestLog::cancelled(const StreamId& stream, const Principal& who, const Origin& origin) {
  log_->write(LogLevel::info, "cancelled", fields_of(trail_of(stream, who, origin)));
}

void RequestLog::refused(const StreamId& stream, const Principal& who, const Origin& origin,
                         const Failure& failure) {
  refused(trail_of(stream, who, origin), to_string(failure.code), failure.field);
}

void RequestLog::refused(const RequestTrail& trail, std::string_view code, std::string_view field) {
  if (!log_->writes(LogLevel::info) || !may_tell_refusal())
    return;
  auto fields = fields_of(trail);
  fields.push_back({"code", code});
  fields.push_back({"field", field});
  log_->write(LogLevel::info, "refused", fields);
}

bool RequestLog::may_tell_refusal() {
  const auto now = std::chrono::steady_clock::now();
  int64_t untold = 0;
  bool may = true;
  {
    const std::lock_guard lock(mutex_);
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      told_ = 0;
      untold = std::exchange(untold_, 0);
    }
    may = told_ < kRefusalsPerSecond;
    told_ += may;
    untold_ += !may;
  }
  if (untold > 0)
    log_->write(LogLevel::warning, "refusals_untold", {{"count", untold}});
  return may;
}

void RequestLog::event(const Event& event, RequestTrail& trail) {
  if (const auto* finished = std::get_if<Finished>(&event)) {
    trail.reasons += (trail.reasons.empty() ? "" : ",") + finished->reason;
    if (!finished->error.empty())
      trail.error = finished->error;
  } else if (const auto* rejected = std::get_if<Rejected>(&event)) {
    refused(trail, rejected->error, rejected->field);
  } else if (const auto* done = std::get_if<Done>(&event)) {
    const bool failed = !trail.error.empty();
    auto fields = fields_of(trail);
    fields.push_back({"reason", trail.reasons});
    fields.push_back({"code", trail.error});
    fields.push_back({"prompt_tokens", int64_t{done->prompt_tokens}});
    fields.push_back({"generated_tokens", int64_t{done->generated_tokens}});
    fields.push_back({"queue_ms", done->queue_ms});
    fields.push_back({"prefill_ms", done->prefill_ms});
    fields.push_back({"decode_ms", done->decode_ms});
    log_->write(failed ? LogLevel::error : LogLevel::info, "finished", fields);
  }
}

} // namespace millrace
