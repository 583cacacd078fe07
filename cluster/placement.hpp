#pragma once

// Which set of actors runs on which device.

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// A device as a person names it: "cpu:0".
struct DeviceSpec {
  std::string kind; // "cpu"
  int index = 0;
};

/// Parses "cpu" or "cpu:0". Throws std::invalid_argument that names it and says what is known, and for cuda
/// that this build has no CUDA device.
DeviceSpec parse_device(std::string_view text);

} // namespace millrace
