#pragma once

// How a msgpack value reaches a C++ object of known type. A Slot is a pointer and a table of what may be done
// through it, so that one visitor, compiled once, fills every message and no tree of values is ever built.

#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "messages/message.hpp"

#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace millrace {

struct Nil {};
struct Extension {};
struct BytesView {
  std::string_view data;
};
/// A value that is not a container. Non-negative integers are always uint64_t; string_view is UTF-8; BytesView is
/// msgpack bin.
using Scalar = std::variant<Nil, bool, uint64_t, int64_t, double, std::string_view, BytesView, Extension>;

/// One step on the way to a value: into a field, or to an element of an array or a map.
struct Step {
  std::string_view field;
  std::optional<int64_t> index;
};

struct SlotType;

/// Where the next value goes. Without a type: nowhere, it is skipped.
struct Slot {
  void* object = nullptr;
  const SlotType* type = nullptr;
};

/// What a map's key leads to.
struct Entry {
  enum Status { known, unknown, repeated, bad_key } status = unknown;
  Slot slot;
  Step step;
};

/// A required field that a map does not hold; no name: there is none.
struct Missing {
  std::string_view field;
  Error error = Error::invalid_field;
};

struct SlotType {
  std::string_view expected;                                              // "a boolean", for error texts
  bool (*assign)(void* object, const Scalar&) = nullptr;                  // false: wrong type or out of range
  Slot (*append)(void* array) = nullptr;                                  // of the new element
  Entry (*entry)(void* map, const Scalar& key, uint64_t& seen) = nullptr; // seen: bit i for field i
  Missing (*missing)(uint64_t seen) = nullptr;
  Slot (*engage)(void* optional) = nullptr; // of the value; nil goes to assign instead
  Error error = Error::invalid_field;       // of a value that does not fit
  int64_t max_elements = std::numeric_limits<int64_t>::max(); // of an array
};

template <class T> struct SlotTypeOf;
template <class T> Slot slot_of(T& object) {
  return {&object, &SlotTypeOf<T>::kType};
}

template <> struct SlotTypeOf<bool> {
  static bool assign(void* object, const Scalar& value) {
    const bool* flag = std::get_if<bool>(&value);
    if (flag)
      *static_cast<bool*>(object) = *flag;
    return flag;
  }
  static constexpr SlotType kType{.expected = "a boolean", .assign = assign};
};

template <std::integral T> struct SlotTypeOf<T> {
  static bool assign(void* object, const Scalar& value) {
    if (const auto* u = std::get_if<uint64_t>(&value); u && std::in_range<T>(*u)) {
      *static_cast<T*>(object) = static_cast<T>(*u);
      return true;
    }
    if (const auto* i = std::get_if<int64_t>(&value); i && std::in_range<T>(*i)) {
      *static_cast<T*>(object) = static_cast<T>(*i);
      return true;
    }
    return false;
  }
  static constexpr std::string_view expected() {
    if (sizeof(T) == 8)
      return std::signed_integral<T> ? "an integer of 64 bits" : "an unsigned integer of 64 bits";
    return std::signed_integral<T> ? "an integer of 32 bits" : "an unsigned integer of 32 bits";
  }
  static constexpr SlotType kType{.expected = expected(), .assign = assign};
};

template <std::floating_point T> struct SlotTypeOf<T> {
  static bool assign(void* object, const Scalar& value) {
    double number;
    if (const auto* d = std::get_if<double>(&value))
      number = *d;
    else if (const auto* u = std::get_if<uint64_t>(&value))
      number = static_cast<double>(*u);
    else if (const auto* i = std::get_if<int64_t>(&value))
      number = static_cast<double>(*i);
    else
      return false;
    if (!(std::fabs(number) <= std::numeric_limits<T>::max()))
      return false; // too large for T, infinite or NaN
    *static_cast<T*>(object) = static_cast<T>(number);
    return true;
  }
  static constexpr SlotType kType{.expected = "a finite number", .assign = assign};
};

template <> struct SlotTypeOf<std::string> {
  static bool assign(void* object, const Scalar& value) {
    const auto* text = std::get_if<std::string_view>(&value);
    if (text)
      static_cast<std::string*>(object)->assign(*text);
    return text;
  }
  static constexpr SlotType kType{.expected = "a string", .assign = assign};
};

template <> struct SlotTypeOf<Bytes> {
  static bool assign(void* object, const Scalar& value) {
    const auto* bytes = std::get_if<BytesView>(&value);
    if (bytes)
      static_cast<Bytes*>(object)->data.assign(bytes->data);
    return bytes;
  }
  static constexpr SlotType kType{.expected = "bytes (bin)", .assign = assign};
};

template <> struct SlotTypeOf<StreamId> {
  static bool assign(void* object, const Scalar& value) {
    auto& id = *static_cast<StreamId*>(object);
    const auto* bytes = std::get_if<BytesView>(&value);
    if (!bytes || bytes->data.size() != id.bytes.size())
      return false;
    std::memcpy(id.bytes.data(), bytes->data.data(), id.bytes.size());
    return true;
  }
  static constexpr SlotType kType{.expected = "16 bytes (bin)", .assign = assign};
};

template <class T> struct SlotTypeOf<std::optional<T>> {
  static bool assign(void* object, const Scalar& value) {
    if (!std::holds_alternative<Nil>(value))
      return false;
    static_cast<std::optional<T>*>(object)->reset();
    return true;
  }
  static Slot engage(void* object) { return slot_of(static_cast<std::optional<T>*>(object)->emplace()); }
  static constexpr SlotType kType{
      .expected = SlotTypeOf<T>::kType.expected, .assign = assign, .engage = engage};
};

template <class T> struct SlotTypeOf<std::vector<T>> {
  static Slot append(void* object) { return slot_of(static_cast<std::vector<T>*>(object)->emplace_back()); }
  // An element takes one byte of the frame at least: where it takes many here, a frame must not buy so many of them.
  static constexpr SlotType kType{.expected = "an array",
                                  .append = append,
                                  .max_elements = sizeof(T) > 16 ? 65'536 : std::numeric_limits<int64_t>::max()};
};

template <class T> struct SlotTypeOf<std::map<TokenId, T>> {
  static Entry entry(void* object, const Scalar& key, uint64_t&) {
    TokenId id;
    if (!SlotTypeOf<TokenId>::assign(&id, key))
      return {Entry::bad_key, {}, {}};
    const auto [place, inserted] = static_cast<std::map<TokenId, T>*>(object)->try_emplace(id);
    return {inserted ? Entry::known : Entry::repeated, slot_of(place->second), {{}, id}};
  }
  static constexpr SlotType kType{.expected = "a map from token ids", .entry = entry};
};

/// Bit i: field i must be given. A stream id has no sensible default, and so has no struct that needs one;
/// all else has.
template <Fields T> uint64_t required_fields() {
  uint64_t required = 0, bit = 1;
  T{}.visit_fields([&]<class F>(std::string_view, F&) {
    if constexpr (std::same_as<F, StreamId>)
      required |= bit;
    if constexpr (Fields<F>)
      required |= required_fields<F>() ? bit : 0;
    bit <<= 1;
  });
  return required;
}

template <Fields T> struct SlotTypeOf<T> {
  static Entry entry(void* object, const Scalar& key, uint64_t& seen) {
    const auto* name = std::get_if<std::string_view>(&key);
    if (!name)
      return {Entry::bad_key, {}, {}};
    Entry found;
    uint64_t bit = 1;
    static_cast<T*>(object)->visit_fields([&](std::string_view field, auto& value) {
      if (field == *name) {
        found = {seen & bit ? Entry::repeated : Entry::known, slot_of(value), {field, {}}};
        seen |= bit;
      }
      bit <<= 1;
    });
    return found;
  }
  static Missing missing(uint64_t seen) {
    static const uint64_t required = required_fields<T>();
    uint64_t absent = required & ~seen;
    Missing first;
    if (absent)
      T{}.visit_fields([&](std::string_view field, auto&) {
        if (absent & 1 && first.field.empty())
          first.field = field;
        absent >>= 1;
      });
    return first;
  }
  static constexpr SlotType kType{.expected = "a map", .entry = entry, .missing = missing};
};

/// The slot of a whole frame: a map whose "type" is M's, with M's fields.
template <Message M> struct FrameSlotType {
  static constexpr std::string_view kTypeKey = "type";
  static constexpr uint64_t kTypeBit = uint64_t{1} << 63; // no message has so many fields

  static bool assign_type(void*, const Scalar& value) {
    const auto* name = std::get_if<std::string_view>(&value);
    return name && *name == M::kType;
  }
  static constexpr SlotType kTypeName{
      .expected = "the name of the message", .assign = assign_type, .error = Error::malformed};

  static Entry entry(void* object, const Scalar& key, uint64_t& seen) {
    const auto* name = std::get_if<std::string_view>(&key);
    if (!name || *name != kTypeKey)
      return SlotTypeOf<M>::entry(object, key, seen);
    const bool repeated = seen & kTypeBit;
    seen |= kTypeBit;
    return {repeated ? Entry::repeated : Entry::known, {nullptr, &kTypeName}, {kTypeKey, {}}};
  }
  static Missing missing(uint64_t seen) {
    return seen & kTypeBit ? SlotTypeOf<M>::missing(seen) : Missing{kTypeKey, Error::malformed};
  }
  static constexpr SlotType kType{
      .expected = "a map", .entry = entry, .missing = missing, .error = Error::malformed};
};
template <Message M> Slot frame_slot_of(M& message) {
  return {&message, &FrameSlotType<M>::kType};
}

} // namespace millrace
