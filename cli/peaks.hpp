#pragma once

#include "messages/message.hpp"

#include <cstddef>
#include <string_view>

namespace millrace {

/// What the machine can do at most, measured; or what of that was reached.
struct Rates {
  double read_gb_s = 0;
  double int8_gop_s = 0;
  double f32_gop_s = 0;
  MILLRACE_FIELDS(read_gb_s, int8_gop_s, f32_gop_s)

  /// Of the arithmetic that a device does with these activations, "q8" or "f32" (DeviceKey::activations).
  double gop_s(std::string_view activations) const { return activations == "q8" ? int8_gop_s : f32_gop_s; }
};

/// Threads that a device has where --threads says so many; 0: all physical cores.
int threads_of(int threads);

/// Takes about three seconds, with a progress bar on a terminal. probe_bytes: of the array that is read; larger than the caches.
Rates measure_peaks(int threads, size_t probe_bytes);

} // namespace millrace
