#include "gateway/http/api/api_error.hpp"

#include "gateway/json.hpp"

#include <algorithm>
#include <array>

namespace millrace::http {
namespace {

struct Mapping {
  Error error;
  int status;
  std::string_view code; // OpenAI's, where clients look for it
  std::string_view message;
};

constexpr std::array kMappings{
    Mapping{Error::malformed, 400, "malformed", "the request is malformed"},
    Mapping{Error::invalid_field, 400, "invalid_field", "a field is invalid"},
    Mapping{Error::prompt_too_long, 400, "context_length_exceeded", "the prompt does not fit the context"},
    Mapping{Error::busy, 429, "busy", "the server is busy; try again later"},
    Mapping{Error::conflict, 409, "conflict", "the same id or key is in use by another request"},
    Mapping{Error::unknown_request, 404, "unknown_request", "there is no such stream, or its log is gone"},
    Mapping{Error::unsupported, 400, "unsupported", "the model or the server cannot do this"},
    Mapping{Error::draining, 503, "draining", "the server is stopping"},
    Mapping{Error::non_finite_logits, 500, "non_finite_logits", "the model's output is not a number"},
    Mapping{Error::device_lost, 503, "device_lost", "the device that ran the request was lost"},
    Mapping{Error::internal, 500, "internal", "an internal error"},
};

const Mapping& mapping_of(std::string_view error) {
  const auto* found = std::find_if(kMappings.begin(), kMappings.end(),
                                   [&](const Mapping& mapping) { return to_string(mapping.error) == error; });
  return found != kMappings.end() ? *found : kMappings.back();
}

ApiError make(const Mapping& mapping, std::string_view field, std::string_view message, int32_t retry_after_ms = 0) {
  ApiError error;
  error.status = mapping.status;
  error.code = mapping.code;
  error.param = http_field(field);
  error.message = error.param;
  if (!error.message.empty())
    error.message += ' ';
  error.message += message.empty() ? mapping.message : message;
  if (mapping.error == Error::busy)
    error.retry_after_s = std::max(1, (retry_after_ms + 999) / 1000); // 1 where who refuses can't tell
  return error;
}

std::string_view type_of(int status) {
  if (status == 401 || status == 403)
    return "authentication_error";
  if (status == 429)
    return "rate_limit_error";
  if (status == 504)
    return "timeout_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

} // namespace

ApiError api_error(const Failure& failure) {
  return make(mapping_of(to_string(failure.code)), failure.field, failure.message, failure.retry_after_ms);
}

ApiError api_error(const Rejected& rejected) {
  return make(mapping_of(rejected.error), rejected.field, rejected.message, rejected.retry_after_ms);
}

ApiError api_error_of(std::string_view error) {
  return make(mapping_of(error), {}, {});
}

ApiError bad_field(std::string param, std::string message) {
  return api_error(Failure{Error::invalid_field, std::move(param), std::move(message)});
}

ApiError unsupported(std::string param, std::string message) {
  return api_error(Failure{Error::unsupported, std::move(param), std::move(message)});
}

ApiError not_found(std::string message) {
  return {404, "not_found", {}, std::move(message), 0};
}

std::string http_field(std::string_view field) {
  static constexpr std::string_view kSampling = "sampling.";
  if (field.starts_with(kSampling))
    return std::string(field.substr(kSampling.size()));
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"prompt_ids", "prompt"},
      {"stop_ids", "stop_token_ids"},
      {"prompt_logprobs", "logprobs"},
      {"template_arguments", "chat_template_kwargs"},
      {"tenant", "user"},
      {"idempotency_key", "Idempotency-Key"}};
  for (const auto& [ours, theirs] : kNames)
    if (field.starts_with(ours))
      return std::string(theirs) + std::string(field.substr(ours.size()));
  return std::string(field);
}

std::string to_json(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  append_json(out, std::string_view{error.message});
  out += ",\"type\":";
  append_json(out, type_of(error.status));
  out += ",\"param\":";
  if (error.param.empty())
    out += "null";
  else
    append_json(out, std::string_view{error.param});
  out += ",\"code\":";
  append_json(out, std::string_view{error.code});
  out += "}}";
  return out;
}

Response to_response(const ApiError& error) {
  Response response;
  response.status = error.status;
  response.body = to_json(error);
  if (error.retry_after_s > 0)
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  return response;
}

} // namespace millrace::http
