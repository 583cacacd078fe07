#pragma once

#include "model/text/chat/value.hpp"

namespace millrace::jinja {

/// Python's format % values: a tuple of values, one value, or a dict for %(name)s. Conversions s r d i u x X
/// o e E f F g G and %%.
TextPtr percent_format(Fuel& fuel, const Text& format, const Value& values);

/// Python's str.format with fields {}, {0} and {name}, without format specifications.
TextPtr brace_format(Fuel& fuel, const Text& format, const Arguments& arguments);

} // namespace millrace::jinja
