#pragma once

// Methods of texts, lists and dicts, and the members of namespaces and loops.

#include "model/text/chat/value.hpp"

#include <optional>
#include <string_view>

namespace millrace::jinja {

struct BoundMethod {
  Value self;
  Value (*call)(Fuel& fuel, const Value& self, const Arguments& arguments);
};

/// object.name where that is a method or a member. Methods that would change their object are undefined: a
/// template may not.
std::optional<Value> member(Fuel& fuel, const Value& object, std::string_view name);

/// Texts of a text: what both methods and filters do.
TextPtr strip(Fuel& fuel, const TextPtr& text, const Value* characters, bool left, bool right);
TextPtr replace(Fuel& fuel, const Text& text, const Text& old, const Text& with, int64_t count);
TextPtr upper(Fuel& fuel, const Text& text);
TextPtr lower(Fuel& fuel, const Text& text);
TextPtr capitalize(Fuel& fuel, const Text& text);
TextPtr escape(Fuel& fuel, const Text& text); // for HTML; marked as such
/// Where a line ends: before and behind its line break.
struct Line {
  size_t begin, end, next;
};
std::vector<Line> lines_of(Fuel& fuel, std::string_view text);

} // namespace millrace::jinja
