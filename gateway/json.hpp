#pragma once

// Messages and results as JSON, on one line: an object whose keys are the fields in their order, with "type"
// first where the struct is a Message. Ids of streams are hex, bytes are arrays of integers, an absent
// optional is null. Floats are written with the fewest digits that read back as the same float. Strings that
// are not UTF-8 (model output may not be) get U+FFFD; writing never throws.

#include "messages/stream.hpp"

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

void append_json(std::string& out, bool value);
void append_json(std::string& out, int64_t value);
void append_json(std::string& out, uint64_t value);
void append_json(std::string& out, float value);  // null where it is not finite: JSON has no word for it
void append_json(std::string& out, double value); // likewise
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, const Bytes& bytes);
void append_json(std::string& out, const StreamId& id);

namespace detail {

template <class T>
concept OptionalLike = requires(const T& value) {
  value.has_value();
  *value;
};
template <class T>
concept MapLike = requires {
  typename T::mapped_type;
};
template <class T>
concept ArrayLike = requires(const T& value) {
  value.begin();
  value.end();
};

} // namespace detail

/// Numbers, strings, optionals, maps, arrays and structs with a field list, nested as they come.
template <class T> void append_json_value(std::string& out, const T& value) {
  auto separate = [&out, first = true]() mutable {
    if (!first)
      out += ',';
    first = false;
  };
  if constexpr (Fields<T>) {
    out += '{';
    if constexpr (Message<T>) {
      separate();
      out += "\"type\":";
      append_json(out, std::string_view{T::kType});
    }
    value.visit_fields([&](std::string_view name, const auto& field) {
      separate();
      append_json(out, name);
      out += ':';
      append_json_value(out, field);
    });
    out += '}';
  } else if constexpr (std::same_as<T, bool> || std::floating_point<T>) {
    append_json(out, value);
  } else if constexpr (std::signed_integral<T>) {
    append_json(out, int64_t{value});
  } else if constexpr (std::unsigned_integral<T>) {
    append_json(out, uint64_t{value});
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    append_json(out, std::string_view{value});
  } else if constexpr (detail::OptionalLike<T>) {
    if (value.has_value())
      append_json_value(out, *value);
    else
      out += "null";
  } else if constexpr (detail::MapLike<T>) {
    out += '{';
    for (const auto& [key, mapped] : value) {
      separate();
      out += '"' + std::to_string(key) + "\":";
      append_json_value(out, mapped);
    }
    out += '}';
  } else if constexpr (detail::ArrayLike<T>) {
    out += '[';
    for (const auto& element : value) {
      separate();
      append_json_value(out, element);
    }
    out += ']';
  } else {
    append_json(out, value);
  }
}

template <Fields T> std::string to_json(const T& value) {
  std::string out;
  append_json_value(out, value);
  return out;
}

/// The event that is held.
std::string to_json(const Event& event);

} // namespace millrace
