#include "cli/version.hpp"

#include "kernels/isa.hpp"

#include <caf/config.hpp>
#include <msgpack/version.hpp>
#include <zmq.hpp>

namespace millrace {

std::string version_number() {
  return MILLRACE_VERSION;
}

std::string version_text() {
  std::string paths;
  for (const Isa isa : available_isas())
    paths += std::string(paths.empty() ? "" : " ") + to_string(isa);

  int major, minor, patch;
  zmq_version(&major, &minor, &patch);
  const auto dotted = [](int a, int b, int c) {
    return std::to_string(a) + '.' + std::to_string(b) + '.' + std::to_string(c);
  };
  // CAF_VERSION is 1706 for 0.17.6.
  return "millrace " MILLRACE_VERSION "\n"
         "CPU paths: " +
         paths +
         "\n"
         "CAF " +
         dotted(CAF_VERSION / 10000, CAF_VERSION / 100 % 100, CAF_VERSION % 100) + ", ZeroMQ " +
         dotted(major, minor, patch) + ", msgpack " + MSGPACK_VERSION + "\n";
}

} // namespace millrace
