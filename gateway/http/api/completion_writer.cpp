#include "gateway/http/api/completion_writer.hpp"

#include "gateway/json.hpp"

namespace millrace::http {

void append_usage(std::string& out, const Usage& usage) {
  out += "{\"prompt_tokens\":";
  append_json(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_json(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  append_json(out, usage.prompt_tokens + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_json(out, usage.cached_tokens);
  out += "}}";
}

bool is_error(const Finished& event) {
  return event.reason == to_string(FinishReason::error);
}

} // namespace millrace::http
