#pragma once

// JSON from a client as a tree, within bounds: how deep, how many values. Duplicate keys, invalid UTF-8 and lone
// surrogates are refused.

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <variant>

namespace millrace::http {

/// Objects keep the order of their members: templates print tools as they were written.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_depth = 64;
  size_t max_values = 5u << 18; // a value takes about 100 bytes at worst, and a client pays two for it
};

/// Why a text is not taken.
struct JsonProblem {
  std::string member;  // of the root object, where it happened; as the client wrote it, so never to be echoed unchecked
  std::string message; // holds no text of the client
};

/// Never throws on any text but for want of memory.
std::variant<Json, JsonProblem> read_json(std::string_view text, const JsonLimits& limits);

/// "a string", "an array", …: what a message may say about a value.
std::string_view kind_of(const Json& value);

/// On one line; bytes that are not UTF-8 become U+FFFD.
std::string write_json(const Json& value);

} // namespace millrace::http
