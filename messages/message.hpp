#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// MILLRACE_FIELDS(a, b, …) lists the fields of a message once, inside its struct. Every encoding
/// reads this list: msgpack maps (messages/codec.hpp), CAF (the same msgpack bytes), JSON (cli).
///
///   template <class Visitor> void visit_fields(Visitor&& v) { v("a", a); v("b", b); … }
#define MILLRACE_PARENS ()
#define MILLRACE_EXPAND(...) MILLRACE_EXPAND3(MILLRACE_EXPAND3(MILLRACE_EXPAND3(__VA_ARGS__)))
#define MILLRACE_EXPAND3(...) MILLRACE_EXPAND2(MILLRACE_EXPAND2(MILLRACE_EXPAND2(__VA_ARGS__)))
#define MILLRACE_EXPAND2(...) MILLRACE_EXPAND1(MILLRACE_EXPAND1(MILLRACE_EXPAND1(__VA_ARGS__)))
#define MILLRACE_EXPAND1(...) __VA_ARGS__
#define MILLRACE_VISIT_EACH(field, ...)                                                                      \
  visitor(#field, field);                                                                                    \
  __VA_OPT__(MILLRACE_VISIT_AGAIN MILLRACE_PARENS(__VA_ARGS__))
#define MILLRACE_VISIT_AGAIN() MILLRACE_VISIT_EACH
#define MILLRACE_FIELDS(...)                                                                                 \
  template <class Visitor> void visit_fields([[maybe_unused]] Visitor&& visitor) {                           \
    __VA_OPT__(MILLRACE_EXPAND(MILLRACE_VISIT_EACH(__VA_ARGS__)))                                            \
  }                                                                                                          \
  template <class Visitor> void visit_fields([[maybe_unused]] Visitor&& visitor) const {                     \
    __VA_OPT__(MILLRACE_EXPAND(MILLRACE_VISIT_EACH(__VA_ARGS__)))                                            \
  }

namespace millrace {

/// A struct with a field list.
template <class T>
concept Fields = requires(T& t) {
  t.visit_fields([](std::string_view, auto&) {});
};

/// A struct with a field list that travels alone: on the wire its map begins with {"type": kType}.
template <class T>
concept Message = Fields<T> && requires {
  std::string_view{T::kType};
};

} // namespace millrace
