#include "kernels/rope.hpp"

#include <cassert>
#include <cmath>

namespace millrace {

RopeTable::RopeTable(int64_t positions, int64_t dim, double theta, const std::vector<float>& factors)
    : dim{dim}, cos(size_t(positions * dim / 2)), sin(cos.size()) {
  assert(dim % 2 == 0);
  assert(factors.empty() || int64_t(factors.size()) == dim / 2);
  int64_t pairs = dim / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    // In double: at position 10^5 a float angle would be off by 0.004.
    double frequency =
        std::pow(theta, -2.0 * double(i) / double(dim)) / (factors.empty() ? 1 : factors[size_t(i)]);
    for (int64_t p = 0; p < positions; ++p) {
      cos[size_t(p * pairs + i)] = float(std::cos(double(p) * frequency));
      sin[size_t(p * pairs + i)] = float(std::sin(double(p) * frequency));
    }
  }
}

namespace {

// Turns one head in place. x: [2 * pairs]; cos, sin: [pairs]. Compiled once for each path: the compiler
// vectorises the loop and, as nothing is contracted, all paths give the same bits.
template <RopeStyle kStyle>
[[gnu::always_inline]] inline void turn(float* x, const float* __restrict cos, const float* __restrict sin,
                                        int64_t pairs) {
  constexpr int kStep = kStyle == RopeStyle::interleaved ? 2 : 1;
  float* __restrict a = x;
  float* __restrict b = kStyle == RopeStyle::interleaved ? x + 1 : x + pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    float a0 = a[kStep * i], b0 = b[kStep * i];
    a[kStep * i] = a0 * cos[i] - b0 * sin[i];
    b[kStep * i] = a0 * sin[i] + b0 * cos[i];
  }
}

template <RopeStyle kStyle> void turn_scalar(float* x, const float* cos, const float* sin, int64_t pairs) {
  turn<kStyle>(x, cos, sin, pairs);
}

#pragma GCC push_options
#pragma GCC target("avx2,fma")
template <RopeStyle kStyle> void turn_avx2(float* x, const float* cos, const float* sin, int64_t pairs) {
  turn<kStyle>(x, cos, sin, pairs);
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
template <RopeStyle kStyle> void turn_avx512(float* x, const float* cos, const float* sin, int64_t pairs) {
  turn<kStyle>(x, cos, sin, pairs);
}
#pragma GCC pop_options

template <RopeStyle kStyle> auto path(Isa isa) {
  return isa == Isa::scalar ? turn_scalar<kStyle>
         : isa == Isa::avx2 ? turn_avx2<kStyle>
                            : turn_avx512<kStyle>;
}

} // namespace

void rope(float* x, int64_t row_stride, const int32_t* positions, int64_t rows, int64_t heads,
          int64_t head_dim, const RopeTable& table, RopeStyle style, Isa isa) {
  assert(table.dim <= head_dim);
  auto turn_head =
      style == RopeStyle::interleaved ? path<RopeStyle::interleaved>(isa) : path<RopeStyle::halves>(isa);
  int64_t pairs = table.dim / 2;
  for (int64_t r = 0; r < rows; ++r) {
    size_t at = size_t(positions[r]) * size_t(pairs);
    assert(positions[r] >= 0 && at < table.cos.size());
    for (int64_t h = 0; h < heads; ++h)
      turn_head(x + r * row_stride + h * head_dim, &table.cos[at], &table.sin[at], pairs);
  }
}

} // namespace millrace
