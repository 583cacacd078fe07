#include "kernels/tiles.hpp"

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

void put16(uint8_t* out, int row, uint16_t value) { std::memcpy(out + 2 * row, &value, sizeof value); }

/// Four codes side by side, as they lie in a tile.
uint32_t four_codes(const Run& run, int j) {
  uint32_t word;
  std::memcpy(&word, run.code.data() + 4 * j, sizeof word);
  return word;
}

void put_four(uint8_t* vector, int row, uint32_t word) { std::memcpy(vector + 4 * row, &word, sizeof word); }

void put_codes(uint8_t* out, int row, const Run& run, int bits) {
  if (bits == 8) {
    for (int j = 0; j < 8; ++j) put_four(out + 64 * j, row, four_codes(run, j));
    return;
  }
  for (int j = 0; j < 4; ++j)
    put_four(out + 64 * j, row, (four_codes(run, j) & 0x0f0f0f0f) | (four_codes(run, j + 4) & 0x0f0f0f0f) << 4);
  const int upper_bits = bits - 4; // of vector j: at bit upper_bits * j of what is left, eight bits to a vector
  for (int first = 0; upper_bits && first < 8; first += 8 / upper_bits) {
    uint32_t upper = 0;
    for (int j = 0; j < 8 / upper_bits; ++j) upper |= (four_codes(run, first + j) >> 4 & 0x0f0f0f0f) << (upper_bits * j);
    put_four(out + 256 + 64 * (first * upper_bits / 8), row, upper);
  }
}

void pack_quantised(uint8_t* tile, const Matrix& w, int64_t first, int rows) {
  const BlockFormat format = block_format(w.type);
  const int64_t per_scale = format.runs_per_scale();
  const size_t run_bytes = size_t(sub_bytes(format) + code_bytes(format));
  const size_t group_bytes = size_t(scale_bytes(format)) + size_t(per_scale) * run_bytes;
  const bool halves = format.scales == Scales::sub16 || format.scales == Scales::sub16_min;
  for (int row = 0; row < rows; ++row) {
    const std::byte* from = w.row(first + row);
    for (int64_t r = 0; r < w.cols / kRun; ++r) {
      const Run run = read_run(from, r, w.type);
      uint8_t* group = tile + size_t(r / per_scale) * group_bytes;
      put16(group, row, run.d);
      if (scale_bytes(format) == 64) put16(group + 32, row, run.dmin);
      uint8_t* to = group + scale_bytes(format) + size_t(r % per_scale) * run_bytes;
      if (format.scales == Scales::sub32_min) {
        to[row] = run.sub[0];
        to[16 + row] = run.min[0];
      }
      for (int h = 0; halves && h < 2; ++h) {
        to[16 * h + row] = run.sub[h];
        if (format.has_min()) to[32 + 16 * h + row] = run.min[h];
      }
      put_codes(to + sub_bytes(format), row, run, format.bits);
    }
  }
}

template <size_t kBytes> void pack_numbers(uint8_t* tile, const Matrix& w, int64_t first, int rows) {
  const std::byte* from = w.row(first);
  const size_t stride = row_bytes(w.type, w.cols);
  for (int64_t k = 0; k < w.cols; ++k, tile += kTileRows * kBytes)
    for (int row = 0; row < rows; ++row)
      std::memcpy(tile + size_t(row) * kBytes, from + size_t(row) * stride + size_t(k) * kBytes, kBytes);
}

} // namespace

size_t tile_bytes(DType type, int64_t cols) {
  if (!is_quantised(type)) return kTileRows * row_bytes(type, cols);
  const BlockFormat format = block_format(type);
  const size_t runs = size_t(cols / kRun);
  return runs / size_t(format.runs_per_scale()) * size_t(scale_bytes(format))
         + runs * size_t(sub_bytes(format) + code_bytes(format));
}

void pack_tile(uint8_t* tile, const Matrix& w, int64_t first) {
  std::memset(tile, 0, tile_bytes(w.type, w.cols));
  const int rows = int(std::min<int64_t>(kTileRows, w.rows - first));
  if (is_quantised(w.type))
    pack_quantised(tile, w, first, rows);
  else if (w.type == DType::f32)
    pack_numbers<4>(tile, w, first, rows);
  else
    pack_numbers<2>(tile, w, first, rows);
}

} // namespace millrace
