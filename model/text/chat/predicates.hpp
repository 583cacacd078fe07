#pragma once

#include "model/text/chat/value.hpp"

#include <string_view>

namespace millrace::jinja {

using Predicate = bool (*)(Fuel& fuel, const Value& value, const Arguments& arguments);

/// value is name(arguments), what Jinja calls a test; null if there is none of this name.
Predicate find_predicate(std::string_view name);

} // namespace millrace::jinja
