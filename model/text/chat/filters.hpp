#pragma once

#include "model/text/chat/value.hpp"

#include <string_view>

namespace millrace::jinja {

using Filter = Value (*)(Fuel& fuel, const Value& value, const Arguments& arguments);

/// value|name(arguments); null if there is no filter of this name.
Filter find_filter(std::string_view name);

} // namespace millrace::jinja
