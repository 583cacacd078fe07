#pragma once

// /tokenize and /detokenize: pure functions from bodies to answers. Slow for long texts, so they run on a worker.

#include "gateway/http/exchange.hpp"
#include "gateway/http/api/request_rules.hpp"
#include "model/text/chat/chat_template.hpp"

namespace millrace::http {

/// {"content" or "prompt" or "messages", "add_special", "parse_special", "with_pieces"} -> {"tokens", "count",
/// "max_model_len"}. BOS is added by default to a prompt, as completions would do, and not to content. With pieces the
/// tokens are {"id", "piece"}, where a piece that is not UTF-8 is an array of its bytes. Messages need a template.
Response tokenize(std::string_view body, const RequestRules& rules, const ChatTemplate* chat_template);

/// {"tokens", "with_pieces"} -> {"content", "pieces"}; bytes that are no UTF-8 become U+FFFD. A piece is {"piece", "bytes"}: as the
/// vocabulary spells the token, and what it stands for.
Response detokenize(std::string_view body, const RequestRules& rules);

} // namespace millrace::http
