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
#pragma GCC target("avx2,fma,f16c")

struct Vec {
  static constexpr int kLanes = 8;
  static constexpr int kManyRows = 8;
  static constexpr bool kDotTakesAllCodes = false;
  using Float = __m256;
  using Int = __m256i;

  static Int load(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
  static Int zero_int() { return _mm256_setzero_si256(); }
  static Int ints(int32_t v) { return _mm256_set1_epi32(v); }
  static Int bytes(int8_t v) { return _mm256_set1_epi8(v); }
  static Int four(const int8_t* p) {
    int32_t v;
    std::memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
  }
  static Int bit_and(Int a, Int b) { return _mm256_and_si256(a, b); }
  static Int or_masked(Int a, Int b, Int mask) { return _mm256_or_si256(a, _mm256_and_si256(b, mask)); }
  template <int n> static Int left(Int a) { return _mm256_slli_epi16(a, n); }
  template <int n> static Int right(Int a) { return _mm256_srli_epi16(a, n); }
  static Int add_int(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int sub_int(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int mul_int(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
  static Int byte_of(Int a, int i) { return _mm256_and_si256(_mm256_srl_epi32(a, _mm_cvtsi32_si128(8 * i)), ints(255)); }
  static Int load_u8(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
  static Int load_i8(const uint8_t* p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
  static Int table128(const int8_t* values) {
    const __m128i table = _mm_xor_si128(_mm_loadu_si128((const __m128i*)values), _mm_set1_epi8(-128));
    return _mm256_broadcastsi128_si256(table);
  }
  static Int lookup(Int table, Int index) { return _mm256_shuffle_epi8(table, index); }
  /// Codes of up to six bits: a pair of products stays below 2^15, so vpmaddubsw is exact.
  static Int dot(Int sum, Int codes, Int x) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
  }
  /// Codes are value + 128: |value| * (x with the sign of value) fits, since |x| <= 127.
  static Int dot_wide(Int sum, Int codes, Int x) {
    const Int value = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return dot(sum, _mm256_abs_epi8(value), _mm256_sign_epi8(x, value));
  }

  static Float zero() { return _mm256_setzero_ps(); }
  static Float floats(float v) { return _mm256_set1_ps(v); }
  static Float load_f32(const void* p) { return _mm256_loadu_ps((const float*)p); }
  static Float load_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
  static Float load_bf16(const uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
  }
  static Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float abs(Float a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static void store(float* p, Float a) { _mm256_storeu_ps(p, a); }
  static void store_rounded(int32_t* p, Float a) { // to nearest even
    _mm256_storeu_si256((__m256i*)p, _mm256_cvtps_epi32(a));
  }
};

#include "kernels/tile_loops.inl"

#pragma GCC pop_options

} // namespace

const TileKernels& tile_kernels_avx2() {
  static constexpr TileKernels kernels{q8_tiles, f32_tiles, quantise_row};
  return kernels;
}

} // namespace millrace
