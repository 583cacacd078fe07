#pragma once

// The object that a POST brings, or why it is not taken.

#include "gateway/http/api/api_error.hpp"
#include "gateway/http/api/request_rules.hpp"

#include <span>
#include <string_view>
#include <variant>

namespace millrace::http {

/// A JSON object. A refusal names the member where it happened if it is one of `fields`, and else none: a member's name
/// is text of the client.
std::variant<Json, ApiError> read_body(std::string_view body, const JsonLimits& limits,
                                       std::span<const std::string_view> fields);

} // namespace millrace::http
