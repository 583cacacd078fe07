#pragma once

// What every reader of a body needs to know about the server.

#include "gateway/http/api/json_document.hpp"
#include "messages/validate.hpp"
#include "model/text/tokenizer.hpp"

#include <memory>
#include <string>

namespace millrace::http {

struct RequestRules {
  std::string model;
  bool require_known_model = true;
  Limits limits;
  JsonLimits json;
  size_t max_prompts = 128; // of one completions request, and its choices over all prompts
  std::shared_ptr<const Tokenizer> tokenizer; // may be absent: then control tokens have no spelling
};

} // namespace millrace::http
