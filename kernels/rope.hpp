#pragma once

#include "kernels/isa.hpp"

#include <cstdint>
#include <vector>

namespace millrace {

/// Which two numbers of a head form a pair that is turned.
enum class RopeStyle {
  interleaved, // 2i and 2i+1: the llama architecture's GGUF files ("NORM")
  halves,      // i and i + dim/2: Qwen2 and others ("NEOX")
};

/// Cosines and sines of all positions, computed once: angle(p, i) = p * theta^(-2i/dim) / factor[i].
struct RopeTable {
  /// factors: empty, or [dim/2] divisors of the frequencies (Llama 3: rope_freqs.weight).
  RopeTable(int64_t positions, int64_t dim, double theta, const std::vector<float>& factors);
  int64_t dim;
  std::vector<float> cos, sin; // [positions, dim/2]
};

/// Turns the first table.dim numbers of each head in place. x: [rows, heads, head_dim], `row_stride` floats
/// from row to row; positions: [rows].
void rope(float* x, int64_t row_stride, const int32_t* positions, int64_t rows, int64_t heads,
          int64_t head_dim, const RopeTable& table, RopeStyle style, Isa isa);

} // namespace millrace
