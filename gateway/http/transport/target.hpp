#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::http {

/// A request's target, taken apart and decoded.
struct Target {
  std::string path;                         // begins with '/'
  std::map<std::string, std::string> query; // '+' stands for a space
};

/// Of "/path?query", or of the form with scheme and authority that a proxy would get. Nothing for other
/// forms, broken percent escapes, control characters in the path, a parameter that comes twice, and more than
/// 64 parameters.
std::optional<Target> parse_target(std::string_view text);

} // namespace millrace::http
