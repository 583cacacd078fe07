#pragma once

#include <bit>
#include <cstdint>

namespace millrace {

/// IEEE 754 binary16 to float, exactly. Subnormals, infinities and NaN included.
inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16;
  const uint32_t magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) { // a multiple of 2^-24, which a float holds exactly
    const float value = float(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
}

/// bfloat16 is the upper half of a float.
inline float bf16_to_f32(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

} // namespace millrace
