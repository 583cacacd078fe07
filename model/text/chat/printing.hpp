#pragma once

#include "model/text/chat/value.hpp"

namespace millrace::jinja {

/// As Python's str: what {{ }} shows. Throws Failure for what has no useful text (functions, generators).
TextPtr to_text(Fuel& fuel, const Value& value);
/// As Python's repr: texts quoted, as they stand inside of a printed list.
void print_repr(Fuel& fuel, const Value& value, TextBuilder& out);
/// As Python's repr of a float: the shortest digits that give it back, 1.0 and 1e+16.
std::string float_repr(double value);

} // namespace millrace::jinja
