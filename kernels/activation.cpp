#include "kernels/activation.hpp"

#include "kernels/exp.hpp"

#include <cmath>

namespace millrace {
namespace {

void silu_multiply_scalar(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

// Partial vectors are masked, not finished by scalar code: an element's bits must not depend on where in the
// array it stands, since callers cut arrays into pieces.

#pragma GCC push_options
#pragma GCC target("avx2,fma")

void silu_multiply_avx2(float* out, const float* gate, const float* up, int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
  for (int64_t i = 0; i < n; i += 8) {
    __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - i < 8 ? int(n - i) : 8), lane);
    __m256 g = _mm256_maskload_ps(gate + i, mask);
    __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp_avx2(_mm256_xor_ps(g, sign))));
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(silu, _mm256_maskload_ps(up + i, mask)));
  }
}

#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

void silu_multiply_avx512(float* out, const float* gate, const float* up, int64_t n) {
  const __m512 one = _mm512_set1_ps(1), sign = _mm512_set1_ps(-0.0f);
  for (int64_t i = 0; i < n; i += 16) {
    __mmask16 mask = n - i >= 16 ? __mmask16(0xffff) : __mmask16((1u << (n - i)) - 1);
    __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
    __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exp_avx512(_mm512_xor_ps(g, sign))));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(mask, up + i)));
  }
}

#pragma GCC pop_options

} // namespace

void silu_multiply(float* out, const float* gate, const float* up, int64_t n, Isa isa) {
  auto path = isa == Isa::scalar ? silu_multiply_scalar
              : isa == Isa::avx2 ? silu_multiply_avx2
                                 : silu_multiply_avx512;
  path(out, gate, up, n);
}

void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    x[i] += y[i];
}

} // namespace millrace
