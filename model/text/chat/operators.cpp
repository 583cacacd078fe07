#include "model/text/chat/operators.hpp"

#include "model/text/chat/characters.hpp"
#include "model/text/chat/format.hpp"
#include "model/text/chat/methods.hpp"

#include <cmath>
#include <cstring>

namespace millrace::jinja {
namespace {

[[noreturn]] void refuse_operands(std::string_view symbol, const Value& left, const Value& right) {
  for (const Value& operand : {left, right})
    if (operand.is_undefined())
      fail_undefined(operand);
  throw Failure("unsupported operand types for " + std::string(symbol) + ": '" +
                std::string(type_name(left)) + "' and '" + std::string(type_name(right)) + "'");
}

[[noreturn]] void fail_overflow() {
  throw Failure("a number beyond 64 bits");
}

Value concatenate(Fuel& fuel, const Value& left, const Value& right) {
  if (left.text() && right.text()) {
    const bool markup = left.text()->markup || right.text()->markup;
    const auto part = [&](const Value& value) {
      return markup ? escape(fuel, *value.text()) : value.get<TextPtr>();
    };
    const TextPtr first = part(left), second = part(right);
    fuel.spend_bytes(first->bytes.size() + second->bytes.size());
    TextBuilder out;
    out.append(*first);
    out.append(*second);
    return text_value(out.finish(markup));
  }
  const Sequence *a = left.sequence(), *b = right.sequence();
  if (!a || !b || a->kind != b->kind || (a->kind != SequenceKind::list && a->kind != SequenceKind::tuple))
    refuse_operands("+", left, right);
  fuel.spend(a->items.size() + b->items.size());
  std::vector<Value> items = a->items;
  items.insert(items.end(), b->items.begin(), b->items.end());
  return sequence(fuel, a->kind, std::move(items));
}

Value repeat(Fuel& fuel, const Value& value, int64_t times) {
  const size_t count = times < 0 ? 0 : static_cast<size_t>(times);
  const auto checked = [&](size_t size) {
    size_t total = 0;
    if (__builtin_mul_overflow(size, count, &total))
      throw Failure("the template makes too long a value");
    return total;
  };
  if (const Text* text = value.text()) {
    fuel.spend_bytes(checked(text->bytes.size()));
    if (text->bytes.empty())
      return value;
    fuel.spend(count);
    TextBuilder out;
    for (size_t i = 0; i < count; ++i)
      out.append(*text);
    return text_value(out.finish());
  }
  const Sequence& original = *value.sequence();
  fuel.spend(checked(original.items.size()));
  std::vector<Value> items;
  for (size_t i = 0; !original.items.empty() && i < count; ++i)
    items.insert(items.end(), original.items.begin(), original.items.end());
  return sequence(fuel, original.kind, std::move(items));
}

bool is_repeatable(const Value& value) {
  const Sequence* items = value.sequence();
  return value.text() || (items && (items->kind == SequenceKind::list || items->kind == SequenceKind::tuple));
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
      fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
      fail_overflow();
  }
  return result;
}

// Python rounds quotients down; the remainder has the divisor's sign.
int64_t floor_quotient(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1)
    fail_overflow();
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

Value integer_arithmetic(BinaryOperator op, int64_t a, int64_t b, bool from_input) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
  case BinaryOperator::add: overflows = __builtin_add_overflow(a, b, &result); break;
  case BinaryOperator::subtract: overflows = __builtin_sub_overflow(a, b, &result); break;
  case BinaryOperator::multiply: overflows = __builtin_mul_overflow(a, b, &result); break;
  case BinaryOperator::floor_divide: result = floor_quotient(a, b); break;
  case BinaryOperator::modulo: result = b == -1 ? 0 : a - b * floor_quotient(a, b); break;
  case BinaryOperator::divide: return floating(static_cast<double>(a) / static_cast<double>(b), from_input);
  case BinaryOperator::power:
    if (b < 0)
      return floating(std::pow(static_cast<double>(a), static_cast<double>(b)), from_input);
    result = a == 1 || a == 0 ? (b == 0 ? 1 : a) : a == -1 ? (b % 2 ? -1 : 1) : integer_power(a, b);
  }
  if (overflows)
    fail_overflow();
  return integer(result, from_input);
}

double float_arithmetic(BinaryOperator op, double a, double b) {
  switch (op) {
  case BinaryOperator::add: return a + b;
  case BinaryOperator::subtract: return a - b;
  case BinaryOperator::multiply: return a * b;
  case BinaryOperator::divide: return a / b;
  case BinaryOperator::floor_divide: return std::floor(a / b);
  case BinaryOperator::modulo: {
    const double remainder = std::fmod(a, b);
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
  }
  case BinaryOperator::power: break;
  }
  const double result = std::pow(a, b);
  if ((std::isnan(result) && !std::isnan(a) && !std::isnan(b)) || (std::isinf(result) && std::isfinite(a)))
    throw Failure("the result of ** is no finite number");
  return result;
}

std::string_view symbol_of(BinaryOperator op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

} // namespace

void fail_undefined(const Value& value) {
  const TextPtr& reason = value.get<Undefined>().reason;
  throw Failure(reason ? redacted(*reason) : std::string("a value is undefined"));
}

Value binary(Fuel& fuel, BinaryOperator op, const Value& left, const Value& right) {
  if (op == BinaryOperator::modulo && left.text())
    return text_value(percent_format(fuel, *left.text(), right));
  const auto a = as_number(left), b = as_number(right);
  if (!a || !b) {
    if (op == BinaryOperator::add)
      return concatenate(fuel, left, right);
    if (op == BinaryOperator::multiply && is_repeatable(left) && as_integer(right))
      return repeat(fuel, left, *as_integer(right));
    if (op == BinaryOperator::multiply && is_repeatable(right) && as_integer(left))
      return repeat(fuel, right, *as_integer(left));
    refuse_operands(symbol_of(op), left, right);
  }
  const bool divides = op == BinaryOperator::divide || op == BinaryOperator::floor_divide ||
                       op == BinaryOperator::modulo || (op == BinaryOperator::power && *b < 0);
  if (divides && (op == BinaryOperator::power ? *a : *b) == 0)
    throw Failure("division by zero");
  const bool from_input = is_from_input(left) || is_from_input(right);
  if (const auto i = as_integer(left), j = as_integer(right); i && j)
    return integer_arithmetic(op, *i, *j, from_input);
  return floating(float_arithmetic(op, *a, *b), from_input);
}

Value negate(const Value& operand) {
  if (operand.is<Float>())
    return floating(-operand.get<Float>().value, operand.get<Float>().from_input);
  const auto number = as_integer(operand);
  if (operand.is_undefined())
    fail_undefined(operand);
  if (!number)
    throw Failure("bad operand type for unary -: '" + std::string(type_name(operand)) + "'");
  if (*number == INT64_MIN)
    fail_overflow();
  return integer(-*number, is_from_input(operand));
}

bool equals(Fuel& fuel, const Value& left, const Value& right) {
  fuel.spend();
  if (const auto i = as_integer(left), j = as_integer(right); i && j)
    return *i == *j;
  if (const auto a = as_number(left), b = as_number(right); a && b)
    return *a == *b;
  if (left.data.index() != right.data.index())
    return false;
  if (const Text* a = left.text(), *b = right.text(); a && b) {
    if (a->bytes.size() != b->bytes.size())
      return false;
    fuel.spend_bytes(a->bytes.size());
    return a->bytes == b->bytes;
  }
  if (const Sequence* a = left.sequence(), *b = right.sequence(); a && b) {
    if (a == b)
      return true;
    if (a->kind != b->kind || a->kind == SequenceKind::generator || a->items.size() != b->items.size())
      return false;
    for (size_t i = 0; i < a->items.size(); ++i)
      if (!equals(fuel, a->items[i], b->items[i]))
        return false;
    return true;
  }
  if (const Dict* a = left.dict(), *b = right.dict(); a && b) {
    if (a->entries().size() != b->entries().size())
      return false;
    for (const auto& [key, value] : a->entries()) {
      const Value* other = b->find(fuel, key);
      if (!other || !equals(fuel, value, *other))
        return false;
    }
    return true;
  }
  if (left.is_undefined() || left.is_none())
    return true;
  if (left.is<Namespace*>())
    return left.get<Namespace*>() == right.get<Namespace*>();
  return false;
}

bool less(Fuel& fuel, const Value& left, const Value& right) {
  fuel.spend();
  if (const auto i = as_integer(left), j = as_integer(right); i && j)
    return *i < *j;
  if (const auto a = as_number(left), b = as_number(right); a && b)
    return *a < *b;
  // The order of UTF-8 bytes is that of code points.
  if (const Text* a = left.text(), *b = right.text(); a && b) {
    fuel.spend_bytes(std::min(a->bytes.size(), b->bytes.size()));
    return a->bytes < b->bytes;
  }
  const Sequence *a = left.sequence(), *b = right.sequence();
  if (!a || !b || a->kind != b->kind || !is_repeatable(left))
    refuse_operands("<", left, right);
  const size_t shared = std::min(a->items.size(), b->items.size());
  for (size_t i = 0; i < shared; ++i)
    if (!equals(fuel, a->items[i], b->items[i]))
      return less(fuel, a->items[i], b->items[i]);
  return a->items.size() < b->items.size();
}

size_t find_text(Fuel& fuel, std::string_view text, std::string_view part, size_t from) {
  if (from > text.size())
    return std::string_view::npos;
  // memmem is linear also where the part nearly occurs everywhere.
  const void* found = part.empty() ? text.data() + from
                                   : memmem(text.data() + from, text.size() - from, part.data(), part.size());
  const size_t position =
      found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
  fuel.spend_bytes(std::min(position, text.size()) - from + part.size());
  return position;
}

bool contains(Fuel& fuel, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.is_undefined())
      fail_undefined(item);
    if (!item.text())
      throw Failure("'in <string>' requires string as left operand, not " + std::string(type_name(item)));
    return find_text(fuel, text->bytes, item.text()->bytes) != std::string_view::npos;
  }
  if (const Dict* entries = container.dict()) {
    if (item.dict() || (item.sequence() && item.sequence()->kind != SequenceKind::tuple))
      hash_key(fuel, item);
    return entries->find(fuel, item) != nullptr;
  }
  if (const Sequence* items = container.sequence()) {
    for (const Value& candidate : items->items)
      if (equals(fuel, candidate, item))
        return true;
    return false;
  }
  if (container.is_undefined())
    return false;
  throw Failure("argument of type '" + std::string(type_name(container)) + "' is not iterable");
}

bool compare(Fuel& fuel, CompareOperator op, const Value& left, const Value& right) {
  const bool is_nan = (left.is<Float>() && std::isnan(left.get<Float>().value)) ||
                      (right.is<Float>() && std::isnan(right.get<Float>().value));
  switch (op) {
  case CompareOperator::equal: return equals(fuel, left, right);
  case CompareOperator::not_equal: return !equals(fuel, left, right);
  case CompareOperator::less: return less(fuel, left, right);
  case CompareOperator::less_equal: return !less(fuel, right, left) && !is_nan;
  case CompareOperator::greater: return less(fuel, right, left);
  case CompareOperator::greater_equal: return !less(fuel, left, right) && !is_nan;
  case CompareOperator::in: return contains(fuel, right, left);
  case CompareOperator::not_in: break;
  }
  return !contains(fuel, right, left);
}

namespace {

Value missing(const Value& object, const Text& name, std::string_view what) {
  TextBuilder reason;
  reason.append("a " + std::string(type_name(object)) + " has no " + std::string(what) + " '", true);
  reason.append(name, 0, std::min<size_t>(name.bytes.size(), 600));
  reason.append("'", true);
  return {Undefined{reason.finish()}};
}

/// The character of this index, from the end if negative.
std::optional<Value> character_at(Fuel& fuel, const TextPtr& text, int64_t index) {
  fuel.spend_scan(text->bytes.size());
  const auto count = static_cast<int64_t>(count_characters(text->bytes));
  if (index < 0)
    index += count;
  if (index < 0 || index >= count)
    return std::nullopt;
  const size_t begin = offset_of(text->bytes, static_cast<size_t>(index));
  return text_value(slice(text, begin, begin + character_size(std::string_view(text->bytes).substr(begin))));
}

std::optional<Value> item_at(Fuel& fuel, const Value& object, const Value& index) {
  if (const Dict* entries = object.dict()) {
    const Value* found = entries->find(fuel, index);
    return found ? std::optional(*found) : std::nullopt;
  }
  const auto position = as_integer(index);
  if (!position)
    return std::nullopt;
  if (object.text())
    return character_at(fuel, object.get<TextPtr>(), *position);
  const Sequence* items = object.sequence();
  if (!items || !items->has_index())
    return std::nullopt;
  const auto size = static_cast<int64_t>(items->items.size());
  const int64_t at = *position < 0 ? *position + size : *position;
  return at >= 0 && at < size ? std::optional(items->items[static_cast<size_t>(at)]) : std::nullopt;
}

} // namespace

Value subscript(Fuel& fuel, const Value& object, const Value& index) {
  if (object.is_undefined())
    fail_undefined(object);
  if (const auto item = item_at(fuel, object, index))
    return *item;
  if (const Text* name = index.text()) {
    fuel.spend_bytes(name->bytes.size());
    const auto found = member(fuel, object, name->bytes);
    return found ? *found : missing(object, *name, "item");
  }
  return undefined("a " + std::string(type_name(object)) + " has no such item");
}

Value attribute(Fuel& fuel, const Value& object, std::string_view name) {
  if (object.is_undefined())
    fail_undefined(object);
  if (const auto found = member(fuel, object, name))
    return *found;
  if (const Dict* entries = object.dict())
    if (const Value* found = entries->find(name))
      return *found;
  return missing(object, *make_text(name, true), "attribute");
}

namespace {

struct SliceBounds {
  int64_t begin, end, step;
};

// As Python's slice.indices.
SliceBounds bounds_of(const Value& begin, const Value& end, const Value& step, int64_t size) {
  const auto part = [](const Value& value, int64_t otherwise) {
    return value.is_none() ? otherwise : to_index(value, "a slice's part");
  };
  const int64_t by = part(step, 1);
  if (by == 0)
    throw Failure("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto clamp = [&](int64_t at) {
    return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, low, high);
  };
  return {begin.is_none() ? (by < 0 ? high : low) : clamp(part(begin, 0)),
          end.is_none() ? (by < 0 ? low : high) : clamp(part(end, 0)), by};
}

template <class F> void for_each_index(const SliceBounds& bounds, F f) {
  // Steps beyond the other end may not overflow.
  for (int64_t i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end;) {
    f(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, bounds.step, &i))
      break;
  }
}

Value slice_text(Fuel& fuel, const TextPtr& text, const Value& begin, const Value& end, const Value& step) {
  const std::string_view bytes = text->bytes;
  fuel.spend_scan(bytes.size());
  const SliceBounds bounds = bounds_of(begin, end, step, static_cast<int64_t>(count_characters(bytes)));
  if (bounds.step == 1) {
    const size_t first = offset_of(bytes, static_cast<size_t>(bounds.begin));
    const size_t count = static_cast<size_t>(std::max(bounds.end, bounds.begin) - bounds.begin);
    return text_value(slice(text, first, first + offset_of(bytes.substr(first), count)));
  }
  fuel.spend(bytes.size());
  std::vector<size_t> starts;
  for (size_t i = 0; i < bytes.size(); i += character_size(bytes.substr(i)))
    starts.push_back(i);
  starts.push_back(bytes.size());
  TextBuilder out;
  for_each_index(bounds, [&](size_t i) { out.append(*text, starts[i], starts[i + 1]); });
  return text_value(out.finish());
}

} // namespace

Value slice(Fuel& fuel, const Value& object, const Value& begin, const Value& end, const Value& step) {
  if (object.is_undefined())
    fail_undefined(object);
  if (object.text())
    return slice_text(fuel, object.get<TextPtr>(), begin, end, step);
  const Sequence* all = object.sequence();
  if (!all || !all->has_index())
    return undefined("a " + std::string(type_name(object)) + " cannot be sliced");
  std::vector<Value> items;
  for_each_index(bounds_of(begin, end, step, static_cast<int64_t>(all->items.size())), [&](size_t i) {
    fuel.spend();
    items.push_back(all->items[i]);
  });
  return sequence(fuel, all->kind, std::move(items));
}

std::vector<Value> items_of(Fuel& fuel, const Value& value) {
  if (const Sequence* items = value.sequence()) {
    fuel.spend(items->items.size());
    return items->items;
  }
  std::vector<Value> items;
  if (const Dict* entries = value.dict()) {
    fuel.spend(entries->entries().size());
    for (const auto& [key, _] : entries->entries())
      items.push_back(key);
  } else if (const Text* text = value.text()) {
    fuel.spend(text->bytes.size());
    for (size_t i = 0; i < text->bytes.size();) {
      const size_t end = i + character_size(std::string_view(text->bytes).substr(i));
      items.push_back(text_value(slice(value.get<TextPtr>(), i, end)));
      i = end;
    }
  } else if (!value.is_undefined()) {
    throw Failure("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  return items;
}

SequencePtr sequence_of(Fuel& fuel, const Value& value) {
  if (value.sequence())
    return value.get<SequencePtr>();
  return sequence(fuel, SequenceKind::list, items_of(fuel, value)).get<SequencePtr>();
}

} // namespace millrace::jinja
