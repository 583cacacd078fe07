#pragma once

// A body of /v1/completions or /v1/chat/completions as requests of the pipeline. docs/http.md lists the fields.

#include "gateway/http/api/api_error.hpp"
#include "gateway/http/api/request_rules.hpp"
#include "messages/generation.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::http {

enum class Style { completion, chat };

/// A prompt's text, which an echoing choice begins with. Of ids their bytes, which need not be UTF-8.
struct Echo {
  std::string text;
  bool has_space_prefix = false; // the bytes of its tokens begin with a space that the text has not
};

struct CompletionRequest {
  Style style = Style::completion;
  std::vector<Generate> prompts; // one stream each; ids not yet drawn. At least one
  int32_t n = 1;                 // choices of each prompt; choice i of prompt p is number p * n + i of the answer
  bool stream = false;
  bool include_usage = false;      // with stream
  std::vector<Echo> echo;          // of each prompt, or empty: not wanted. Completions only
  bool logprobs = false;
  bool survive_disconnect = false; // the streams go on when their reader leaves
};

/// Pure, so it may run on any thread. Everything is validated against the limits but what only a tokenizer knows.
std::variant<CompletionRequest, ApiError> read_completion_request(Style style, std::string_view body,
                                                                  const RequestRules& rules);

} // namespace millrace::http
