#include "messages/validate.hpp"

#include "messages/utf8.hpp"

#include <concepts>
#include <limits>
#include <type_traits>

namespace millrace {
namespace {

using Verdict = std::optional<Failure>;

Verdict refuse(std::string field, std::string message) {
  return Failure{Error::invalid_field, std::move(field), std::move(message)};
}

std::string element(std::string_view field, int64_t index) {
  return std::string(field).append("[").append(std::to_string(index)).append("]");
}

/// A NaN is in no range.
Verdict check_range(std::string_view field, std::same_as<float> auto value, int low, int high) {
  if (value >= static_cast<float>(low) && value <= static_cast<float>(high))
    return std::nullopt;
  return refuse(std::string(field), "must be from " + std::to_string(low) + " to " + std::to_string(high));
}

template <std::integral T>
Verdict check_range(std::string_view field, T value, std::type_identity_t<T> low,
                    std::type_identity_t<T> high) {
  if (value >= low && value <= high)
    return std::nullopt;
  return refuse(std::string(field), "must be from " + std::to_string(low) + " to " + std::to_string(high));
}

Verdict check_size(std::string_view field, size_t size, size_t limit, std::string_view unit) {
  if (size <= limit)
    return std::nullopt;
  return refuse(std::string(field), "has " + std::to_string(size) + " " + std::string(unit) + ", at most " +
                                        std::to_string(limit) + " are allowed");
}

Verdict check_ids(std::string_view field, const std::vector<TokenId>& ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size)
      return refuse(element(field, static_cast<int64_t>(i)),
                    "must be a token id from 0 to " + std::to_string(vocab_size - 1));
  return std::nullopt;
}

Verdict check_text(const std::string& field, std::string_view text) {
  if (!is_valid_utf8(text))
    return refuse(field, "must be UTF-8");
  return std::nullopt;
}

Verdict check_word(const std::string& field, const std::string& word, size_t max_bytes) {
  if (word.empty())
    return refuse(field, "must not be empty");
  if (auto bad = check_size(field, word.size(), max_bytes, "bytes"))
    return bad;
  return check_text(field, word);
}

/// Everything that the template sees counts as prompt: its parts have no limit but their sum.
Verdict check_messages(const Generate& request, const Limits& limits) {
  if (request.messages->empty())
    return refuse("messages", "must not be empty");
  if (auto bad = check_size("messages", request.messages->size(), limits.max_messages, "messages"))
    return bad;
  size_t bytes = request.tools.value_or("").size();
  if (request.tools)
    if (auto bad = check_text("tools", *request.tools))
      return bad;
  for (size_t i = 0; i < request.messages->size(); ++i) {
    const ChatMessage& message = (*request.messages)[i];
    const std::string field = element("messages", static_cast<int64_t>(i));
    if (auto bad = check_word(field + ".role", message.role, 64))
      return bad;
    const std::pair<const char*, const std::string*> texts[] = {
        {".content", &message.content},
        {".name", message.name ? &*message.name : nullptr},
        {".tool_call_id", message.tool_call_id ? &*message.tool_call_id : nullptr},
        {".tool_calls", message.tool_calls ? &*message.tool_calls : nullptr}};
    for (const auto& [name, text] : texts) {
      if (!text)
        continue;
      if (auto bad = check_text(field + name, *text))
        return bad;
      bytes += text->size();
    }
  }
  if (request.template_arguments) {
    if (auto bad = check_text("template_arguments", *request.template_arguments))
      return bad;
    bytes += request.template_arguments->size();
  }
  return check_size("messages", bytes, limits.max_prompt_bytes, "bytes");
}

Verdict check_prompt(const Generate& request, const Limits& limits) {
  if (request.prompt.has_value() + request.prompt_ids.has_value() + request.messages.has_value() != 1)
    return refuse("prompt", "exactly one of prompt, prompt_ids and messages must be given");
  if (request.messages)
    return check_messages(request, limits);
  if (request.tools)
    return refuse("tools", "belongs to messages");
  if (request.template_arguments)
    return refuse("template_arguments", "belong to messages");
  if (!request.add_generation_prompt)
    return refuse("add_generation_prompt", "belongs to messages");
  if (request.prompt) {
    if (auto bad = check_size("prompt", request.prompt->size(), limits.max_prompt_bytes, "bytes"))
      return bad;
    if (!is_valid_utf8(*request.prompt))
      return refuse("prompt", "must be UTF-8");
    return std::nullopt;
  }
  const size_t length = request.prompt_ids->size();
  if (length >= static_cast<size_t>(limits.context_length))
    return Failure{Error::prompt_too_long, "prompt_ids",
                   "has " + std::to_string(length) +
                       " tokens; with one generated token it must fit the context of " +
                       std::to_string(limits.context_length)};
  return check_ids("prompt_ids", *request.prompt_ids, limits.vocab_size);
}

Verdict check_logit_bias(const std::map<TokenId, float>& bias, const Limits& limits) {
  static constexpr std::string_view kField = "sampling.logit_bias";
  if (auto bad = check_size(kField, bias.size(), limits.max_logit_bias, "entries"))
    return bad;
  for (const auto& [id, value] : bias) {
    if (id < 0 || id >= limits.vocab_size)
      return refuse(element(kField, id),
                    "the key must be a token id from 0 to " + std::to_string(limits.vocab_size - 1));
    if (auto bad = check_range(element(kField, id), value, -100, 100))
      return bad;
  }
  return std::nullopt;
}

Verdict check_sampling(const SamplingParams& sampling, const Limits& limits) {
  if (auto bad = check_range("sampling.temperature", sampling.temperature, 0, 100))
    return bad;
  if (auto bad = check_range("sampling.top_k", sampling.top_k, 0, std::numeric_limits<int32_t>::max()))
    return bad;
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    return refuse("sampling.top_p", "must be above 0 and at most 1");
  if (auto bad = check_range("sampling.min_p", sampling.min_p, 0, 1))
    return bad;
  if (!(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= std::numeric_limits<float>::max()))
    return refuse("sampling.repetition_penalty", "must be above 0 and finite");
  if (auto bad = check_range("sampling.frequency_penalty", sampling.frequency_penalty, -100, 100))
    return bad;
  if (auto bad = check_range("sampling.presence_penalty", sampling.presence_penalty, -100, 100))
    return bad;
  return check_logit_bias(sampling.logit_bias, limits);
}

Verdict check_stop(const Generate& request, const Limits& limits) {
  if (auto bad = check_size("stop", request.stop.size(), limits.max_stop, "strings"))
    return bad;
  for (size_t i = 0; i < request.stop.size(); ++i) {
    const std::string field = element("stop", static_cast<int64_t>(i));
    if (request.stop[i].empty())
      return refuse(field, "must not be empty");
    if (auto bad = check_size(field, request.stop[i].size(), limits.max_stop_bytes, "bytes"))
      return bad;
    if (!is_valid_utf8(request.stop[i]))
      return refuse(field, "must be UTF-8");
  }
  if (auto bad = check_size("stop_ids", request.stop_ids.size(), limits.max_stop, "ids"))
    return bad;
  return check_ids("stop_ids", request.stop_ids, limits.vocab_size);
}

Verdict check_max_tokens(const Generate& request, const Limits& limits) {
  if (!request.max_tokens)
    return std::nullopt;
  return check_range("max_tokens", *request.max_tokens, 0, limits.max_tokens);
}

Verdict check_times(const Generate& request) {
  constexpr int64_t kEndOfYear9999 = 253'402'300'799;
  if (request.time)
    if (auto bad = check_range("time", *request.time, 0, kEndOfYear9999))
      return bad;
  if (request.expires_at)
    return check_range("expires_at", *request.expires_at, 0, kEndOfYear9999 * 1000 + 999);
  return std::nullopt;
}

/// Text that the server keeps as a name, perhaps empty: nothing in it may break a line of a log.
Verdict check_name(const std::string& field, const std::string& name, size_t max_bytes) {
  if (auto bad = check_size(field, name.size(), max_bytes, "bytes"))
    return bad;
  if (auto bad = check_text(field, name))
    return bad;
  if (has_control_characters(name))
    return refuse(field, "must not hold control characters");
  return std::nullopt;
}

Verdict check_scheduling(const Generate& request) {
  constexpr int64_t kDayMs = 24 * 60 * 60 * 1000;
  if (auto bad = check_range("priority", request.priority, -100, 100))
    return bad;
  if (request.deadline_ms)
    if (auto bad = check_range("deadline_ms", *request.deadline_ms, 1, kDayMs))
      return bad;
  if (auto bad = check_name("tenant", request.tenant, 64))
    return bad;
  return check_name("cache_salt", request.cache_salt, 256);
}

Verdict check_readers(const Generate& request) {
  if (auto bad = check_size("readers", request.readers.size(), 64, "keys"))
    return bad;
  for (size_t i = 0; i < request.readers.size(); ++i)
    if (request.readers[i].size() != 40 || !is_valid_utf8(request.readers[i]))
      return refuse(element("readers", static_cast<int64_t>(i)), "must be a CURVE key: 40 characters of Z85");
  return std::nullopt;
}

} // namespace

std::optional<Failure> validate(const Generate& request, const Limits& limits) {
  if (auto bad = check_prompt(request, limits))
    return bad;
  if (auto bad = check_times(request))
    return bad;
  if (auto bad = check_range("n", request.n, 1, limits.max_choices))
    return bad;
  if (auto bad = check_max_tokens(request, limits))
    return bad;
  if (auto bad = check_sampling(request.sampling, limits))
    return bad;
  if (auto bad = check_stop(request, limits))
    return bad;
  if (request.logprobs)
    if (auto bad = check_range("logprobs", *request.logprobs, 0, limits.max_logprobs))
      return bad;
  if (request.prompt_logprobs)
    if (auto bad = check_range("prompt_logprobs", *request.prompt_logprobs, 0, limits.max_logprobs))
      return bad;
  if (request.idempotency_key)
    if (auto bad = check_word("idempotency_key", *request.idempotency_key, 256))
      return bad;
  if (auto bad = check_readers(request))
    return bad;
  return check_scheduling(request);
}

} // namespace millrace
