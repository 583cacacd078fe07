#include "model/text/chat/predicates.hpp"

#include "model/text/chat/arguments.hpp"
#include "model/text/chat/methods.hpp"
#include "model/text/chat/operators.hpp"
#include "model/text/chat/printing.hpp"

namespace millrace::jinja {
namespace {

/// A question about the value alone.
template <bool (*holds)(const Value&)> bool about(Fuel&, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "a test", {});
  return holds(value);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is<bool>();
}
bool is_just_true(const Value& value) {
  return value.is<bool>() && value.get<bool>();
}
bool is_just_false(const Value& value) {
  return value.is<bool>() && !value.get<bool>();
}
bool is_integer(const Value& value) {
  return value.is<Integer>();
}
bool is_float(const Value& value) {
  return value.is<Float>();
}
bool is_number(const Value& value) {
  return as_number(value).has_value();
}
bool is_string(const Value& value) {
  return value.text();
}
bool is_mapping(const Value& value) {
  return value.dict();
}
bool is_iterable(const Value& value) {
  return value.text() || value.sequence() || value.dict() || value.is_undefined();
}
// What has a length and items by index; as Jinja has it, that holds for dicts and for undefined values as
// well.
bool is_sequence(const Value& value) {
  return is_iterable(value) && (!value.sequence() || value.sequence()->has_index());
}
bool is_callable(const Value& value) {
  return value.is<const Macro*>() || value.is<const Function*>() ||
         value.is<std::shared_ptr<const BoundMethod>>() || value.is_undefined();
}

template <CompareOperator op> bool compares(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [other] = bind<1>(arguments, "a test", {"other"});
  return compare(fuel, op, value, needed(other, "a test"));
}

bool is_divisible(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [number] = bind<1>(arguments, "divisibleby", {"num"});
  return !is_true(binary(fuel, BinaryOperator::modulo, value, needed(number, "divisibleby")));
}

template <int64_t remainder> bool has_parity(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "a test", {});
  if (value.text())
    throw Failure("not a number");
  return equals(fuel, binary(fuel, BinaryOperator::modulo, value, integer(2)), integer(remainder));
}

template <char first_letter> bool has_case(Fuel& fuel, const Value& value, const Arguments& arguments) {
  bind<0>(arguments, "a test", {});
  const Value text = text_value(to_text(fuel, value));
  const auto method = member(fuel, text, first_letter == 'l' ? "islower" : "isupper");
  return is_true(method->get<std::shared_ptr<const BoundMethod>>()->call(fuel, text, {}));
}

bool is_same(Fuel& fuel, const Value& value, const Arguments& arguments) {
  const auto [other] = bind<1>(arguments, "sameas", {"other"});
  const Value& that = needed(other, "sameas");
  if (value.sequence() && that.sequence())
    return value.sequence() == that.sequence();
  if (value.dict() && that.dict())
    return value.dict() == that.dict();
  return value.data.index() == that.data.index() && equals(fuel, value, that);
}

struct NamedPredicate {
  std::string_view name;
  Predicate predicate;
};

constexpr NamedPredicate kPredicates[] = {
    {"!=", compares<CompareOperator::not_equal>},
    {"<", compares<CompareOperator::less>},
    {"<=", compares<CompareOperator::less_equal>},
    {"==", compares<CompareOperator::equal>},
    {">", compares<CompareOperator::greater>},
    {">=", compares<CompareOperator::greater_equal>},
    {"boolean", about<is_boolean>},
    {"callable", about<is_callable>},
    {"defined", about<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", compares<CompareOperator::equal>},
    {"equalto", compares<CompareOperator::equal>},
    {"even", has_parity<0>},
    {"false", about<is_just_false>},
    {"float", about<is_float>},
    {"ge", compares<CompareOperator::greater_equal>},
    {"greaterthan", compares<CompareOperator::greater>},
    {"gt", compares<CompareOperator::greater>},
    {"in", compares<CompareOperator::in>},
    {"integer", about<is_integer>},
    {"iterable", about<is_iterable>},
    {"le", compares<CompareOperator::less_equal>},
    {"lessthan", compares<CompareOperator::less>},
    {"lower", has_case<'l'>},
    {"lt", compares<CompareOperator::less>},
    {"mapping", about<is_mapping>},
    {"ne", compares<CompareOperator::not_equal>},
    {"none", about<is_none>},
    {"number", about<is_number>},
    {"odd", has_parity<1>},
    {"sameas", is_same},
    {"sequence", about<is_sequence>},
    {"string", about<is_string>},
    {"true", about<is_just_true>},
    {"undefined", about<is_undefined>},
    {"upper", has_case<'u'>},
};

} // namespace

Predicate find_predicate(std::string_view name) {
  const auto* found = std::ranges::find(kPredicates, name, &NamedPredicate::name);
  return found == std::end(kPredicates) ? nullptr : found->predicate;
}

} // namespace millrace::jinja
