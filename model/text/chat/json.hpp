#pragma once

#include "model/text/chat/value.hpp"

#include <string_view>

namespace millrace::jinja {

/// Values nest at most 64 deep. `what` names the text in an error: "tools is not valid JSON". Throws Failure;
/// integers beyond 64 bits are refused, since Python would print all their digits.
Value parse_json(Fuel& fuel, std::string_view text, std::string_view what);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  const Text* indent = nullptr; // of one level; null: all in one line
  const Text* item_separator = nullptr;
  const Text* key_separator = nullptr; // null: as json.dumps has them
};

/// As Python's json.dumps. Throws Failure for what JSON has no form for.
TextPtr to_json(Fuel& fuel, const Value& value, const JsonStyle& style);

} // namespace millrace::jinja
