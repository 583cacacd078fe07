#pragma once

#include "model/text/chat/value.hpp"

#include <algorithm>
#include <array>

namespace millrace::jinja {

/// A value for each parameter, by position or by name; null where none is given. Throws Failure for arguments
/// that fit no parameter.
template <size_t N>
std::array<const Value*, N> bind(const Arguments& arguments, std::string_view function,
                                 const std::array<std::string_view, N>& parameters) {
  const auto fail = [&](std::string_view problem) {
    throw Failure(std::string(function) + "() gets " + std::string(problem));
  };
  std::array<const Value*, N> bound{};
  if (arguments.positional.size() > N)
    fail("too many arguments");
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto parameter = std::find(parameters.begin(), parameters.end(), name);
    if (parameter == parameters.end())
      fail("an argument of a name that it does not have");
    const Value*& slot = bound[static_cast<size_t>(parameter - parameters.begin())];
    if (slot)
      fail("an argument twice");
    slot = &value;
  }
  return bound;
}

/// The text of an argument; throws Failure if it is missing or something else.
inline const Text& text_argument(const Value* argument, std::string_view function) {
  if (!argument || !argument->text())
    throw Failure(std::string(function) + "() needs an argument of type str");
  return *argument->text();
}

inline const Value& needed(const Value* argument, std::string_view function) {
  if (!argument)
    throw Failure(std::string(function) + "() lacks an argument");
  return *argument;
}

inline int64_t integer_argument(const Value* argument, std::string_view function, int64_t otherwise) {
  return argument ? to_index(*argument, std::string(function) + "()'s argument") : otherwise;
}

inline bool flag_argument(const Value* argument, bool otherwise = false) {
  return argument ? is_true(*argument) : otherwise;
}

} // namespace millrace::jinja
