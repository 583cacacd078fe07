#include "kernels/rmsnorm.hpp"

#include <cmath>
#include <immintrin.h>

namespace millrace {
namespace {

void rmsnorm_scalar(float* out, const float* x, const float* weight, int64_t dim, float eps) {
  float sum = 0;
  for (int64_t i = 0; i < dim; ++i)
    sum += x[i] * x[i];
  float scale = 1 / std::sqrt(sum / float(dim) + eps);
  for (int64_t i = 0; i < dim; ++i)
    out[i] = x[i] * scale * weight[i];
}

float sum_lanes(const float* lanes, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i)
    sum += lanes[i];
  return sum;
}

#pragma GCC push_options
#pragma GCC target("avx2,fma")

void rmsnorm_avx2(float* out, const float* x, const float* weight, int64_t dim, float eps) {
  int64_t whole = dim & ~int64_t(7);
  __m256 acc = _mm256_setzero_ps();
  for (int64_t i = 0; i < whole; i += 8) {
    __m256 v = _mm256_loadu_ps(x + i);
    acc = _mm256_fmadd_ps(v, v, acc);
  }
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, acc);
  float sum = sum_lanes(lanes, 8);
  for (int64_t i = whole; i < dim; ++i)
    sum += x[i] * x[i];

  float scale = 1 / std::sqrt(sum / float(dim) + eps);
  for (int64_t i = 0; i < whole; i += 8) {
    __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(v, _mm256_loadu_ps(weight + i)));
  }
  for (int64_t i = whole; i < dim; ++i)
    out[i] = x[i] * scale * weight[i];
}

#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

void rmsnorm_avx512(float* out, const float* x, const float* weight, int64_t dim, float eps) {
  // The last, partial vector is masked: there is no scalar tail.
  auto mask = [dim](int64_t i) {
    return dim - i >= 16 ? __mmask16(0xffff) : __mmask16((1u << (dim - i)) - 1);
  };
  __m512 acc = _mm512_setzero_ps();
  for (int64_t i = 0; i < dim; i += 16) {
    __m512 v = _mm512_maskz_loadu_ps(mask(i), x + i);
    acc = _mm512_fmadd_ps(v, v, acc);
  }
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, acc);
  __m512 scale = _mm512_set1_ps(1 / std::sqrt(sum_lanes(lanes, 16) / float(dim) + eps));
  for (int64_t i = 0; i < dim; i += 16) {
    __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask(i), x + i), scale);
    _mm512_mask_storeu_ps(out + i, mask(i), _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask(i), weight + i)));
  }
}

#pragma GCC pop_options

} // namespace

void rmsnorm(float* out, const float* x, const float* weight, int64_t rows, int64_t dim, float eps, Isa isa) {
  auto row = isa == Isa::scalar ? rmsnorm_scalar : isa == Isa::avx2 ? rmsnorm_avx2 : rmsnorm_avx512;
  for (int64_t r = 0; r < rows; ++r)
    row(out + r * dim, x + r * dim, weight, dim, eps);
}

} // namespace millrace
