#include "cluster/placement.hpp"

#include "model/gguf.hpp"

#include <charconv>
#include <stdexcept>

namespace millrace {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument("\"" + printable(text) + "\" is no device: " + why);
}

} // namespace

DeviceSpec parse_device(std::string_view text) {
  const size_t colon = text.find(':');
  DeviceSpec device{.kind = std::string(text.substr(0, colon))};
  if (device.kind == "cuda")
    refuse(text, "this build has no CUDA devices; known: cpu, cpu:0");
  if (device.kind != "cpu")
    refuse(text, "known: cpu, cpu:0");

  if (colon != std::string_view::npos) {
    const std::string_view index = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), device.index);
    if (error != std::errc{} || end != index.data() + index.size())
      refuse(text, "expected a number after the colon, as in cpu:0");
    if (device.index != 0)
      refuse(text, "the processor is one device: cpu:0");
  }
  return device;
}

} // namespace millrace
