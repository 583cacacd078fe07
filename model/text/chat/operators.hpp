#pragma once

// Python's operators. All throw Failure for operands that Python refuses.

#include "model/text/chat/value.hpp"

namespace millrace::jinja {

enum class BinaryOperator { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class CompareOperator { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

/// Throws Failure with the value's reason.
[[noreturn]] void fail_undefined(const Value& value);

Value binary(Fuel& fuel, BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& operand);
bool compare(Fuel& fuel, CompareOperator op, const Value& left, const Value& right);
bool equals(Fuel& fuel, const Value& left, const Value& right);
bool less(Fuel& fuel, const Value& left, const Value& right);
bool contains(Fuel& fuel, const Value& container, const Value& item);

/// object[index]; undefined if there is no such item. Throws Failure if the object is undefined.
Value subscript(Fuel& fuel, const Value& object, const Value& index);
/// object.name: a method or member, else an item.
Value attribute(Fuel& fuel, const Value& object, std::string_view name);
/// object[begin:end:step] of a text, list or tuple, where None stands for what is left out; undefined for all
/// else.
Value slice(Fuel& fuel, const Value& object, const Value& begin, const Value& end, const Value& step);

/// The items that a for loop walks through: of sequences, keys of dicts, characters of texts.
std::vector<Value> items_of(Fuel& fuel, const Value& value);
/// Without copying where it is a sequence.
SequencePtr sequence_of(Fuel& fuel, const Value& value);

/// Where `part` begins in `text` at or after `from`; npos if nowhere. Linear in the text.
size_t find_text(Fuel& fuel, std::string_view text, std::string_view part, size_t from = 0);

} // namespace millrace::jinja
