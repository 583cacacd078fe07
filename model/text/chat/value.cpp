#include "model/text/chat/value.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace millrace::jinja {
namespace {

template <class... F> struct Overloaded : F... { using F::operator()...; };
template <class... F> Overloaded(F...) -> Overloaded<F...>;

} // namespace

void Dict::put(std::string hash_key, const Value& key, Value value) {
  depth_ = std::max({depth_, 1 + depth_of(key), 1 + depth_of(value)});
  const auto [found, inserted] = index_.try_emplace(std::move(hash_key), entries_.size());
  if (inserted)
    entries_.emplace_back(key, std::move(value));
  else
    entries_[found->second].second = std::move(value);
}

void Dict::set(Fuel& fuel, const Value& key, Value value) {
  fuel.spend();
  put(jinja::hash_key(fuel, key), key, std::move(value));
}

void Dict::set(std::string_view key, Value value) {
  put("s" + std::string(key), text_value(key), std::move(value));
}

const Value* Dict::find(Fuel& fuel, const Value& key) const {
  if (key.sequence() ? key.sequence()->kind != SequenceKind::tuple : key.dict() != nullptr)
    return nullptr;
  const auto found = index_.find(jinja::hash_key(fuel, key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index_.find("s" + std::string(key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

Value none() {
  return {None()};
}
Value integer(int64_t value, bool from_input) {
  return {Integer{value, from_input}};
}
Value floating(double value, bool from_input) {
  return {Float{value, from_input}};
}
Value boolean(bool value) {
  return {value};
}
Value text_value(std::string_view bytes, bool trusted) {
  return {make_text(bytes, trusted)};
}
Value text_value(TextPtr text) {
  return {std::move(text)};
}
Value undefined(std::string_view reason) {
  return {Undefined{make_text(reason, true)}};
}

Value sequence(Fuel& fuel, SequenceKind kind, std::vector<Value> items) {
  fuel.spend(items.size());
  Sequence result{kind, std::move(items)};
  for (const Value& item : result.items)
    result.depth = std::max(result.depth, 1 + depth_of(item));
  if (result.depth > fuel.max_depth())
    throw Failure("the template nests values too deeply");
  return {std::make_shared<const Sequence>(std::move(result))};
}

Value dict(Fuel& fuel, Dict dict) {
  if (dict.depth() > fuel.max_depth())
    throw Failure("the template nests values too deeply");
  return {std::make_shared<const Dict>(std::move(dict))};
}

std::string_view type_name(const Value& value) {
  constexpr std::string_view kSequenceNames[] = {"list",        "tuple",      "range",    "dict_keys",
                                                 "dict_values", "dict_items", "generator"};
  return std::visit(
      Overloaded{[](const Undefined&) -> std::string_view { return "Undefined"; },
                 [](const None&) -> std::string_view { return "NoneType"; },
                 [](bool) -> std::string_view { return "bool"; },
                 [](const Integer&) -> std::string_view { return "int"; },
                 [](const Float&) -> std::string_view { return "float"; },
                 [](const TextPtr&) -> std::string_view { return "str"; },
                 [&](const SequencePtr& s) { return kSequenceNames[static_cast<size_t>(s->kind)]; },
                 [](const DictPtr&) -> std::string_view { return "dict"; },
                 [](Namespace*) -> std::string_view { return "Namespace"; },
                 [](const std::shared_ptr<const Loop>&) -> std::string_view { return "LoopContext"; },
                 [](const Macro*) -> std::string_view { return "Macro"; },
                 [](const auto&) -> std::string_view { return "function"; }},
      value.data);
}

bool is_true(const Value& value) {
  return std::visit(
      Overloaded{[](const Undefined&) { return false; }, [](const None&) { return false; },
                 [](bool b) { return b; }, [](const Integer& i) { return i.value != 0; },
                 [](const Float& f) { return f.value != 0; },
                 [](const TextPtr& text) { return !text->bytes.empty(); },
                 [](const SequencePtr& s) { return s->kind == SequenceKind::generator || !s->items.empty(); },
                 [](const DictPtr& d) { return !d->entries().empty(); }, [](const auto&) { return true; }},
      value.data);
}

int depth_of(const Value& value) {
  if (const Sequence* items = value.sequence())
    return items->depth;
  if (const Dict* entries = value.dict())
    return entries->depth();
  return 0;
}

std::string hash_key(Fuel& fuel, const Value& value) {
  if (const Text* text = value.text()) {
    fuel.spend_bytes(text->bytes.size());
    return "s" + text->bytes;
  }
  if (value.is_none())
    return "n";
  if (value.is_undefined())
    return "u";
  if (const auto number = as_integer(value))
    return "i" + std::to_string(*number);
  if (const auto number = as_number(value)) {
    if (std::abs(*number) < 0x1p63 && *number == std::trunc(*number))
      return "i" + std::to_string(static_cast<int64_t>(*number));
    return "f" + std::to_string(std::bit_cast<uint64_t>(*number));
  }
  const Sequence* items = value.sequence();
  if (!items || items->kind != SequenceKind::tuple)
    throw Failure("unhashable type: '" + std::string(type_name(value)) + "'");
  std::string key = "t";
  for (const Value& item : items->items) {
    fuel.spend();
    const std::string part = hash_key(fuel, item);
    fuel.spend_bytes(key.size() + part.size());
    key += std::to_string(part.size()) + ":" + part;
  }
  return key;
}

bool is_from_input(const Value& value) {
  if (value.is<Integer>())
    return value.get<Integer>().from_input;
  return value.is<Float>() && value.get<Float>().from_input;
}

std::optional<int64_t> as_integer(const Value& value) {
  if (value.is<Integer>())
    return value.get<Integer>().value;
  if (value.is<bool>())
    return value.get<bool>();
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (value.is<Float>())
    return value.get<Float>().value;
  if (const auto number = as_integer(value))
    return static_cast<double>(*number);
  return std::nullopt;
}

int64_t to_index(const Value& value, std::string_view what) {
  if (const auto number = as_integer(value))
    return *number;
  throw Failure(std::string(what) + " must be an integer, not '" + std::string(type_name(value)) + "'");
}

} // namespace millrace::jinja
