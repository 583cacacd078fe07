#pragma once

// GGML's quantised block formats, taken apart: every one of them is runs of 32 small unsigned codes with scales. What a code
// means is one of five formulas, so that dequantisation, packing and the matrix product need no case per format.

#include "kernels/dtype.hpp"

#include <array>
#include <cstdint>

namespace millrace {

/// Codes in a run.
inline constexpr int kRun = 32;

/// What a run's codes are multiplied with. d and dmin are f16.
enum class Scales : uint8_t {
  d,          // value = d * (code - offset)
  d_min,      // value = d * code + dmin
  sub32_min,  // value = (d * sub[0]) * code - dmin * min[0]
  sub16,      // value = (d * sub[i / 16]) * (code - offset), sub signed
  sub16_min,  // value = (d * sub[i / 16]) * code - dmin * min[i / 16]
};

struct BlockFormat {
  int bits = 0;             // of a code: 4, 5, 6 or 8
  Scales scales = Scales::d;
  int offset = 0;
  bool table = false;       // a code stands for kIq4NlValues[code] instead of itself

  /// Runs that share d and dmin.
  constexpr int runs_per_scale() const { return scales == Scales::d || scales == Scales::d_min ? 1 : 8; }
  constexpr bool has_min() const { return scales != Scales::d && scales != Scales::sub16; }
  bool operator==(const BlockFormat&) const = default;
};

inline constexpr std::array<int8_t, 16> kIq4NlValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};

constexpr bool is_quantised(DType type) {
  return type != DType::f32 && type != DType::f16 && type != DType::bf16;
}

/// Of a quantised type. 2- and 3-bit codes are kept in 4 bits.
constexpr BlockFormat block_format(DType type) {
  switch (type) {
  case DType::q4_0: return {4, Scales::d, 8};
  case DType::q4_1: return {4, Scales::d_min, 0};
  case DType::q5_0: return {5, Scales::d, 16};
  case DType::q5_1: return {5, Scales::d_min, 0};
  case DType::q8_0: return {8, Scales::d, 128};
  case DType::iq4_nl: return {4, Scales::d, 0, true};
  case DType::iq4_xs: return {4, Scales::sub16, 0, true}; // one scale a run, told twice
  case DType::q2_k: return {4, Scales::sub16_min, 0};
  case DType::q3_k: return {4, Scales::sub16, 4};
  case DType::q4_k: return {4, Scales::sub32_min, 0};
  case DType::q5_k: return {5, Scales::sub32_min, 0};
  case DType::q6_k: return {6, Scales::sub16, 32};
  case DType::f32: case DType::f16: case DType::bf16: break;
  }
  return {};
}

/// One run of a row.
struct Run {
  std::array<uint8_t, kRun> code;
  uint16_t d = 0, dmin = 0;        // f16 bits
  std::array<uint8_t, 2> sub{};    // two's complement where signed
  std::array<uint8_t, 2> min{};
};

/// The run-th run of a row that begins at `row`, which may be unaligned.
Run read_run(const std::byte* row, int64_t run, DType type);

} // namespace millrace
