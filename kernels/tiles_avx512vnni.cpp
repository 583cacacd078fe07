#include "kernels/tiles.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <immintrin.h>
#include <limits>

namespace millrace {
namespace {

#pragma GCC diagnostic ignored "-Wuninitialized" // GCC 12 takes its own intrinsics' undefined operands for ours
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")

#include "kernels/vec512.inl"

struct Vec : Vec512 {
  static constexpr bool kDotTakesAllCodes = true;
  /// Each lane: sum + its four codes (unsigned) times four bytes of x (signed), exactly.
  static Int dot(Int sum, Int codes, Int x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  static Int dot_wide(Int sum, Int codes, Int x) { return dot(sum, codes, x); }
};

#include "kernels/tile_loops.inl"

#pragma GCC pop_options

} // namespace

const TileKernels& tile_kernels_avx512vnni() {
  static constexpr TileKernels kernels{q8_tiles, f32_tiles, quantise_row};
  return kernels;
}

} // namespace millrace
