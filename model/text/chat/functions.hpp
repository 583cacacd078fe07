#pragma once

#include "model/text/chat/value.hpp"

#include <deque>
#include <span>
#include <string_view>

namespace millrace::jinja {

/// What one render owns besides its values.
struct Context {
  Fuel fuel;
  int64_t now = 0; // Unix time; 0: the clock
  std::deque<Namespace> namespaces;
};

struct Function {
  std::string_view name;
  Value (*call)(Context& context, const Arguments& arguments);
};

/// The functions that each template can call by name: raise_exception, strftime_now, range, namespace, dict.
std::span<const Function> functions();

} // namespace millrace::jinja
