#pragma once

// Paged causal attention with grouped queries:
//   out[r, h] = sum over j <= position(r) of softmax_j(scale * q[r, h] . k[j, g]) * v[j, g]
//   where g = h / (heads / kv_heads)
//
// Keys and values live in blocks of kBlockSize positions. A row's arithmetic is fixed by its position: keys
// are walked in tiles of four blocks by absolute position with an online softmax (Milakov & Gimelshein 2018),
// so batch, chunking and block placement cannot change a bit.

#include "kernels/isa.hpp"
#include "kernels/thread_pool.hpp"

#include <cstdint>
#include <span>

namespace millrace {

inline constexpr int kBlockSize = 16;   // positions in a KV block
inline constexpr int kMaxHeadDim = 512; // of any model that is served

struct AttentionShape {
  int64_t heads, kv_heads, head_dim; // kv_heads divides heads; head_dim <= kMaxHeadDim
  float scale;                       // of the scores, e.g. 1 / sqrt(head_dim)
};

/// One layer of the pool. Block b begins at `keys + b * stride` and at `values + b * stride`.
/// keys of a block: [kv_heads, head_dim, kBlockSize] (a lane per position);
/// values: [kv_heads, kBlockSize, head_dim].
struct KvLayer {
  float* keys;
  float* values;
  int64_t stride; // floats from block to block
};

/// Where a row of the pass stands: position `position` of the sequence whose blocks are `blocks`.
struct RowPlace {
  int32_t position;
  const int32_t* blocks; // [position / kBlockSize + 1] or more
};

/// Stores k and v of each row at its place. k, v: [rows, kv_heads, head_dim], row_stride floats apart.
void store_kv(const KvLayer& kv, const float* k, const float* v, int64_t row_stride,
              std::span<const RowPlace> rows, const AttentionShape& shape);

/// Copies the keys and values of the first `positions` positions of a block to another.
void copy_kv(const KvLayer& kv, int32_t from, int32_t to, int positions, int64_t kv_heads, int64_t head_dim);

/// out, q: [rows, heads, head_dim]; strides in floats from row to row. The keys of all rows are stored
/// already. Consecutive rows with the same `blocks` are one sequence in ascending position; they share what
/// is read from the cache. Slots beyond a row's position may hold anything.
void attention(float* out, int64_t out_stride, const float* q, int64_t q_stride,
               std::span<const RowPlace> rows, const KvLayer& kv, const AttentionShape& shape,
               ThreadPool& pool, Isa isa);

} // namespace millrace
