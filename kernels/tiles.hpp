#pragma once

// How matrices lie in memory for the SIMD paths: tiles of 16 output rows, a SIMD lane for each row, so that a product needs no
// horizontal sums and a lane adds in ascending order of k whatever the vector width.
//
// Quantised tile, for each group of runs_per_scale() runs:
//   d [16] f16, dmin [16] f16 if the format has a minimum
//   then for each run: sub and min bytes [16] each (two of each for the sub16 formats), then the codes:
//     byte 64 * j + 4 * row + i belongs to code 4 * j + i of the row
//     8 bits: j = 0 … 7.  4 bits: the high nibble of vector j is vector j + 4.
//     5 bits: 4-bit codes, then one vector whose bit j is the fifth bit of vector j.
//     6 bits: 4-bit codes, then two vectors; the upper bits of vector j are bits 2 (j % 4) … of the (j / 4)-th.
// Other tiles: [cols][16] numbers of their type.

#include "kernels/block_format.hpp"
#include "kernels/matmul.hpp"

#include <vector>

namespace millrace {

inline constexpr int kTileRows = 16;

constexpr int scale_bytes(const BlockFormat& f) { return f.has_min() ? 64 : 32; }
constexpr int sub_bytes(const BlockFormat& f) {
  switch (f.scales) {
  case Scales::d: case Scales::d_min: return 0;
  case Scales::sub32_min: case Scales::sub16: return 32;
  case Scales::sub16_min: return 64;
  }
  return 0;
}
constexpr int code_bytes(const BlockFormat& f) { return 64 * f.bits; }

size_t tile_bytes(DType type, int64_t cols);

/// Fills a tile with rows first … first + 15 of w; rows past the end are zeros.
void pack_tile(uint8_t* tile, const Matrix& w, int64_t first);

/// Rows of x that are kept together, so that a loop over k reads one stream instead of one for each row: rows whose distance is
/// a power of two would evict each other from the first-level cache.
inline constexpr int kRowGroup = 16;

/// x in 8 bits. A group of rows holds, for each run, its rows side by side: element (row, run) is number
/// ((row / 16) * runs + run) * group + row % 16.
struct ActivationRows::Quantised {
  std::vector<int8_t> q;      // 32 codes an element, -127 … 127
  std::vector<float> scale;   // x is about scale * q; NaN where x is not finite
  std::vector<int32_t> sum;   // two an element: sums of the first and the last 16 codes
  int64_t group = kRowGroup;  // 1 for a single row: 512 bytes apart, its codes would use an eighth of the L1 sets
  int64_t element(int64_t row, int64_t run, int64_t runs) const {
    return (row / kRowGroup * runs + run) * group + row % kRowGroup;
  }
};

/// x as floats, as it lies (few rows) or interleaved: number (row, k) at x[row / 16 * group_stride + row % 16 * row_stride + k * k_stride].
struct ActivationRows::Floats {
  const float* x = nullptr;
  int64_t group_stride = 0, row_stride = 0, k_stride = 0;
  std::vector<float> interleaved;
};

/// A run of neighbouring tiles times all rows of x.
struct TileJob {
  float* out;              // where the first tile's outputs of row 0 go
  int64_t out_stride;
  int64_t out_cols;        // outputs from there to the end of the row: the last tile may be partial
  const uint8_t* tiles;
  size_t tile_bytes;
  int n_tiles;
  DType type;
  int64_t rows, cols;      // of x
  const ActivationRows::Quantised* quantised = nullptr; // for q8
  const ActivationRows::Floats* floats = nullptr;       // for f32
};

/// One SIMD path. Both loops give a row the same bits for any number of rows.
struct TileKernels {
  void (*q8)(const TileJob&);  // quantised matrix, 8-bit activations
  void (*f32)(const TileJob&); // any matrix, float activations
  void (*quantise)(ActivationRows::Quantised& out, const float* x, int64_t row, int64_t cols); // one row, at x
};

const TileKernels& tile_kernels_avx2();
const TileKernels& tile_kernels_avx512();
const TileKernels& tile_kernels_avx512vnni();

} // namespace millrace
