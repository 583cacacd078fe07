#pragma once

// What the HTTP API says when it refuses, in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

#include "gateway/http/exchange.hpp"
#include "messages/stream.hpp"

#include <string>

namespace millrace::http {

/// No text of it comes from a client.
struct ApiError {
  int status = 500;
  std::string code;    // "invalid_field", "context_length_exceeded", …
  std::string param;   // the field as HTTP names it, or empty
  std::string message; // a sentence
  int retry_after_s = 0;
};

/// The status and code of a refusal, its field under its HTTP name.
ApiError api_error(const Failure& failure);
ApiError api_error(const Rejected& rejected);
/// Of a choice that finished with this Error's name.
ApiError api_error_of(std::string_view error);

ApiError bad_field(std::string param, std::string message);
ApiError unsupported(std::string param, std::string message);
ApiError not_found(std::string message);

/// "sampling.top_p" -> "top_p", "prompt_ids[3]" -> "prompt[3]": a message's field as the bodies of this API call it.
std::string http_field(std::string_view field);

/// {"error": {…}}
std::string to_json(const ApiError& error);
Response to_response(const ApiError& error);

} // namespace millrace::http
