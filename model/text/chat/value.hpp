#pragma once

// The values of a template, with Python's meaning. All but namespaces and loops are immutable, so values
// share their parts freely and no cycle of owners can arise.

#include "model/text/chat/fuel.hpp"
#include "model/text/chat/provenance.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace millrace::jinja {

struct Value;
struct Sequence;
struct Namespace;
struct Loop;
struct Macro;
struct Function;
struct BoundMethod;
class Dict;

struct Undefined {
  TextPtr reason; // what an error says; null for an anonymous one
};
struct None {};
struct Integer {
  int64_t value = 0;
  bool from_input = false; // its digits are no text of the template
};
struct Float {
  double value = 0;
  bool from_input = false;
};
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;

struct Value {
  std::variant<Undefined, None, bool, Integer, Float, TextPtr, SequencePtr, DictPtr, Namespace*,
               std::shared_ptr<const Loop>, const Macro*, const Function*, std::shared_ptr<const BoundMethod>>
      data;

  template <class T> bool is() const { return std::holds_alternative<T>(data); }
  template <class T> const T& get() const { return std::get<T>(data); }

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  /// Null if it is something else.
  const Text* text() const { return is<TextPtr>() ? get<TextPtr>().get() : nullptr; }
  const Sequence* sequence() const { return is<SequencePtr>() ? get<SequencePtr>().get() : nullptr; }
  const Dict* dict() const { return is<DictPtr>() ? get<DictPtr>().get() : nullptr; }
};

/// What Python would have; they differ in what can be asked of them.
enum class SequenceKind { list, tuple, range, keys, values, items, generator };

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  int depth = 1; // levels of sequences and dicts, this one included

  /// Lists, tuples and ranges; the others can only be walked through.
  bool has_index() const { return kind <= SequenceKind::range; }
};

/// Keeps the order of insertion. Keys are equal as Python's are: 1 == 1.0 == True.
class Dict {
public:
  /// Throws Failure if the key cannot be hashed.
  void set(Fuel& fuel, const Value& key, Value value);
  void set(std::string_view key, Value value);           // the key is the template's
  const Value* find(Fuel& fuel, const Value& key) const; // null also for what cannot be hashed
  const Value* find(std::string_view key) const;

  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  int depth() const { return depth_; }

private:
  void put(std::string hash_key, const Value& key, Value value);

  std::vector<std::pair<Value, Value>> entries_;
  std::map<std::string, size_t, std::less<>> index_; // by hash_key
  int depth_ = 1;
};

/// The one thing that a template can change; owned by the render, so that it may refer to itself.
struct Namespace {
  std::map<std::string, Value, std::less<>> members;
};

struct Loop {
  SequencePtr items;
  size_t index = 0; // the current item, from 0
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

Value none();
Value integer(int64_t value, bool from_input = false);
Value floating(double value, bool from_input = false);
Value boolean(bool value);
Value text_value(std::string_view bytes, bool trusted = true);
Value text_value(TextPtr text);
Value undefined(std::string_view reason);
/// Throws Failure if the values nest too deeply; takes a step for each item.
Value sequence(Fuel& fuel, SequenceKind kind, std::vector<Value> items);
Value dict(Fuel& fuel, Dict dict);

/// "str", "int", "list", "NoneType" …
std::string_view type_name(const Value& value);
bool is_true(const Value& value);
int depth_of(const Value& value);
/// Different for values that are not equal; throws Failure for lists, dicts and the like.
std::string hash_key(Fuel& fuel, const Value& value);

/// An integer or a truth value; throws Failure naming `what`.
int64_t to_index(const Value& value, std::string_view what);
/// Whether its digits, if it is a number, come from the input.
bool is_from_input(const Value& value);
/// A number or a truth value as an integer; nullopt for all else.
std::optional<int64_t> as_integer(const Value& value);
std::optional<double> as_number(const Value& value); // of integers, too

} // namespace millrace::jinja
