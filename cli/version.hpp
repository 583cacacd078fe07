#pragma once

#include <string>

namespace millrace {

/// The version, the CPU paths that this machine can run and the libraries behind it, a line each.
std::string version_text();

} // namespace millrace
