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
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

#include "kernels/vec512.inl"

struct Vec : Vec512 {
  static constexpr bool kDotTakesAllCodes = false;
  /// Codes of up to six bits: a pair of products stays below 2^15, so vpmaddubsw is exact.
  static Int dot(Int sum, Int codes, Int x) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), _mm512_set1_epi16(1)));
  }
  /// Codes are value + 128: |value| * (x with the sign of value) fits, since |x| <= 127.
  static Int dot_wide(Int sum, Int codes, Int x) {
    const Int value = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
    const Int signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(value), _mm512_setzero_si512(), x);
    return dot(sum, _mm512_abs_epi8(value), signed_x);
  }
};

#include "kernels/tile_loops.inl"

#pragma GCC pop_options

} // namespace

const TileKernels& tile_kernels_avx512() {
  static constexpr TileKernels kernels{q8_tiles, f32_tiles, quantise_row};
  return kernels;
}

} // namespace millrace
