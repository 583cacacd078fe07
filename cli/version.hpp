#pragma once

#include <string>

namespace millrace {

/// "0.1.0"
std::string version_number();
/// The version, the CPU paths that this machine can run and the libraries behind it, a line each.
std::string version_text();

} // namespace millrace
