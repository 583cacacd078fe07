#pragma once

// Why a request is answered by the transport itself, in the API's shape of errors.

#include "gateway/http/exchange.hpp"

namespace millrace::http {

struct Refusal {
  int status = 400;
  std::string_view code;    // of our own table: needs no escapes
  std::string_view message; // likewise
};

/// {"error": {"message", "type", "param", "code"}}, with WWW-Authenticate beside a 401.
Response refuse(const Refusal& refusal);

/// "Bad Request" of 400.
std::string_view reason_phrase(int status);

} // namespace millrace::http
