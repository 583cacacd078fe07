#pragma once

// e^x for the vector paths of softmax and silu: x = n ln 2 + r, |r| <= ln 2 / 2, e^x = 2^n e^r, with ln 2 in
// two parts so that r is exact to the last bits (Cody & Waite 1980), and e^r by its Taylor polynomial: the
// first term left out, r^8 / 8!, is below 6e-9. Within 2 units in the last place.
//
// x is clamped to the range of normal floats: below it the result is about 1e-38 instead of 0, above it about
// 1e38 instead of infinity. NaN stays NaN: MAXPS and MINPS return their second operand if either is NaN.

#include <immintrin.h>
#include <initializer_list>

namespace millrace {

#pragma GCC push_options
#pragma GCC target("avx2,fma")

inline __m256 exp_avx2(__m256 x) {
  x = _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(_mm256_set1_ps(-87.0f), x));
  __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f})
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
  __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

inline __m512 exp_avx512(__m512 x) {
  constexpr __mmask16 all = 0xffff; // g++ 12 warns of an uninitialised operand in the forms without a mask
  x = _mm512_maskz_min_ps(all, _mm512_set1_ps(88.0f), _mm512_maskz_max_ps(all, _mm512_set1_ps(-87.0f), x));
  __m512 n = _mm512_maskz_roundscale_ps(all, _mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_maskz_scalef_ps(all, p, n);
}

#pragma GCC pop_options

} // namespace millrace
