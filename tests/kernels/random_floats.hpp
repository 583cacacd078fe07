#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace millrace {

/// n numbers in [-scale, scale), the same for the same seed.
inline std::vector<float> random_floats(size_t n, uint32_t seed, float scale = 1) {
  std::mt19937 random{seed};
  std::vector<float> out(n);
  for (auto& x : out)
    x = scale * (2 * (float(random() >> 8) * 0x1p-24f) - 1);
  return out;
}

} // namespace millrace
