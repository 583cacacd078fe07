#include "kernels/attention.hpp"

#include "kernels/exp.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

namespace millrace {

void store_kv(const KvLayer& kv, const float* k, const float* v, int64_t row_stride,
              std::span<const RowPlace> rows, const AttentionShape& shape) {
  for (size_t r = 0; r < rows.size(); ++r) {
    int64_t block = rows[r].blocks[rows[r].position / kBlockSize];
    int64_t slot = rows[r].position % kBlockSize;
    float* keys = kv.keys + block * kv.stride;
    float* values = kv.values + block * kv.stride;
    const float* k_row = k + int64_t(r) * row_stride;
    const float* v_row = v + int64_t(r) * row_stride;
    for (int64_t i = 0; i < shape.kv_heads * shape.head_dim; ++i)
      keys[i * kBlockSize + slot] = k_row[i];
    for (int64_t g = 0; g < shape.kv_heads; ++g)
      std::copy_n(v_row + g * shape.head_dim, shape.head_dim,
                  values + (g * kBlockSize + slot) * shape.head_dim);
  }
}

void copy_kv(const KvLayer& kv, int32_t from, int32_t to, int positions, int64_t kv_heads, int64_t head_dim) {
  for (int64_t i = 0; i < kv_heads * head_dim; ++i)
    std::copy_n(kv.keys + from * kv.stride + i * kBlockSize, positions, kv.keys + to * kv.stride + i * kBlockSize);
  for (int64_t g = 0; g < kv_heads; ++g)
    std::copy_n(kv.values + from * kv.stride + g * kBlockSize * head_dim, positions * head_dim,
                kv.values + to * kv.stride + g * kBlockSize * head_dim);
}

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One layer's cache as one kv head sees it.
struct KvHead {
  const KvLayer& kv;
  int64_t head, head_dim;

  const float* keys(int32_t block) const { // [head_dim, kBlockSize]
    return kv.keys + block * kv.stride + head * head_dim * kBlockSize;
  }
  const float* values(int32_t block) const { // [kBlockSize, head_dim]
    return kv.values + block * kv.stride + head * head_dim * kBlockSize;
  }
};

/// One query: a head of a row.
struct Query {
  const float* q; // [head_dim]
  float* out;     // [head_dim]
  int32_t position;
};

// The reference: the softmax's running maximum m and sum l are corrected key by key.
void attend_scalar(const Query& query, const int32_t* blocks, const KvHead& kv, float scale) {
  float m = -kInfinity, l = 0;
  std::fill_n(query.out, kv.head_dim, 0.0f);
  for (int32_t j = 0; j <= query.position; ++j) {
    const float* key = kv.keys(blocks[j / kBlockSize]) + j % kBlockSize;
    const float* value = kv.values(blocks[j / kBlockSize]) + j % kBlockSize * kv.head_dim;
    float s = 0;
    for (int64_t d = 0; d < kv.head_dim; ++d)
      s += query.q[d] * key[d * kBlockSize];
    s *= scale;
    float m_new = std::max(m, s);
    float correction = std::exp(m - m_new), p = std::exp(s - m_new);
    l = l * correction + p;
    for (int64_t d = 0; d < kv.head_dim; ++d)
      query.out[d] = query.out[d] * correction + p * value[d];
    m = m_new;
  }
  for (int64_t d = 0; d < kv.head_dim; ++d)
    query.out[d] /= l;
}

// The vector paths take a few queries of one sequence and kv head together, so that keys and values are
// loaded once for all of them, and walk the cache in tiles of kTile positions. Both products have one form,
// for each query r
//
//   acc[r][0 … 16) += a[r][0] * b[0][0 … 16) + a[r][1] * b[1][0 … 16) + …
//
// scores:  a = the query, b = the keys of a block (a lane per position), summed over head_dim
// values:  a = the probabilities, b = 16 columns of a block's values, summed over the positions r may see
//
// A query's numbers never meet another's, and tiles are cut by absolute position: who shares the loads is of
// no matter. Slots beyond a query's position may hold anything, even NaN: scores there are replaced, values
// there are not read.

// The loops over queries are unrolled by pragma: g++ 12 unrolls them anyway, but too late to keep the sums in
// registers, and stores all of them in each step (2.6 times slower).

constexpr int kQueries = 8;
constexpr int kTile = 4 * kBlockSize;

struct QueryGroup {
  Query query[kQueries]; // ascending in position
  int n;
  const int32_t* blocks;
};

/// What attend() keeps of the queries of a group between tiles.
struct Running {
  alignas(64) float q[kQueries * kMaxHeadDim];   // [kQueries, width], times the scale
  alignas(64) float out[kQueries * kMaxHeadDim]; // [kQueries, width], not yet divided by the sum
  alignas(64) float p[kQueries][kTile];          // scores, then probabilities of the tile
  alignas(64) float l[kQueries][kBlockSize];     // the sum of probabilities, lane by lane
  float m[kQueries];                             // the largest score
};

/// The loop of both vector paths. Path has
///   multiply_add(n, acc, acc_stride, a, a_stride, k, b, b_stride, columns)
///     The form above for n queries and k terms. The first `columns` of 16 are meant, the others may come out
///     as anything.
///   softmax(p, n, m, l)
///     Turns the scores p[0 … n) into probabilities, updates m and the lanes of l, and returns the factor for
///     what was summed under the old maximum.
template <class Path>
[[gnu::always_inline]] inline void attend(const QueryGroup& group, const KvHead& kv, float scale) {
  const int64_t dim = kv.head_dim;
  const int64_t width = (dim + kBlockSize - 1) / kBlockSize * kBlockSize;
  const int last = group.n - 1;
  Running run;
  for (int r = 0; r < group.n; ++r) {
    for (int64_t d = 0; d < dim; ++d)
      run.q[r * width + d] = group.query[r].q[d] * scale;
    std::fill_n(&run.out[r * width], width, 0.0f);
    std::fill_n(run.l[r], kBlockSize, 0.0f);
    run.m[r] = -kInfinity;
  }

  for (int32_t tile = 0; tile <= group.query[last].position; tile += kTile) {
    const int32_t* blocks = group.blocks + tile / kBlockSize;
    int seen[kQueries] = {}; // positions of the tile that a query may look at; ascending
    for (int r = 0; r < group.n; ++r)
      seen[r] = std::clamp(group.query[r].position + 1 - tile, 0, kTile);
    int first = 0;
    while (seen[first] == 0)
      ++first;

    for (int j = 0; j < seen[last]; j += kBlockSize) {
      for (int r = first; r < group.n; ++r)
        std::fill_n(&run.p[r][j], kBlockSize, 0.0f);
      Path::multiply_add(group.n - first, &run.p[first][j], kTile, &run.q[first * width], width, dim,
                         kv.keys(blocks[j / kBlockSize]), kBlockSize, kBlockSize);
    }

    for (int r = first; r < group.n; ++r) {
      float correction = Path::softmax(run.p[r], seen[r], run.m[r], run.l[r]);
      if (correction != 1)
        for (int64_t d = 0; d < dim; ++d)
          run.out[r * width + d] *= correction;
    }

    for (int j = 0; j < seen[last]; j += kBlockSize) {
      const float* values = kv.values(blocks[j / kBlockSize]);
      auto seen_here = [&](int r) { return std::clamp(seen[r] - j, 0, kBlockSize); };
      for (int r = first, end; r < group.n; r = end) { // those that see as much of the block go together
        for (end = r + 1; end < group.n && seen_here(end) == seen_here(r);)
          ++end;
        for (int64_t d = 0; d < dim; d += kBlockSize)
          Path::multiply_add(end - r, &run.out[r * width + d], width, &run.p[r][j], kTile, seen_here(r),
                             values + d, dim, std::min<int64_t>(dim - d, kBlockSize));
      }
    }
  }

  for (int r = 0; r < group.n; ++r) {
    float sum = 0;
    for (float lane : run.l[r])
      sum += lane;
    for (int64_t d = 0; d < dim; ++d)
      group.query[r].out[d] = run.out[r * width + d] / sum;
  }
}

#pragma GCC push_options
#pragma GCC target("avx2,fma")

struct Avx2 {
  template <int kRows>
  static void multiply_add(float* acc, int64_t acc_stride, const float* a, int64_t a_stride, int64_t k,
                           const float* b, int64_t b_stride, __m256i low, __m256i high) {
    __m256 sum[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] = _mm256_loadu_ps(acc + r * acc_stride);
      sum[r][1] = _mm256_loadu_ps(acc + r * acc_stride + 8);
    }
    for (int64_t i = 0; i < k; ++i) {
      __m256 b0 = _mm256_maskload_ps(b + i * b_stride, low);
      __m256 b1 = _mm256_maskload_ps(b + i * b_stride + 8, high);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        __m256 x = _mm256_broadcast_ss(a + r * a_stride + i);
        sum[r][0] = _mm256_fmadd_ps(x, b0, sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(x, b1, sum[r][1]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(acc + r * acc_stride, sum[r][0]);
      _mm256_storeu_ps(acc + r * acc_stride + 8, sum[r][1]);
    }
  }

  static void multiply_add(int n, float* acc, int64_t acc_stride, const float* a, int64_t a_stride, int64_t k,
                           const float* b, int64_t b_stride, int64_t columns) {
    constexpr decltype(&multiply_add<1>) kRows[] = {multiply_add<1>, multiply_add<2>, multiply_add<3>,
                                                    multiply_add<4>};
    __m256i low = visible(int(columns)), high = visible(int(columns) - 8);
    for (int r = 0; r < n; r += 4) // the sums of 4 queries fill half the registers
      kRows[std::min(n - r, 4) - 1](acc + r * acc_stride, acc_stride, a + r * a_stride, a_stride, k, b,
                                    b_stride, low, high);
  }

  static float softmax(float* p, int n, float& m, float* l) {
    __m256 top = _mm256_set1_ps(m);
    for (int j = 0; j < n; j += 8)
      top = _mm256_max_ps(top,
                          _mm256_blendv_ps(top, _mm256_load_ps(p + j), _mm256_castsi256_ps(visible(n - j))));
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, top);
    __m256 m_new = _mm256_set1_ps(*std::max_element(lanes, lanes + 8));

    __m256 correction = exp_avx2(_mm256_sub_ps(_mm256_set1_ps(m), m_new));
    __m256 sum = _mm256_mul_ps(_mm256_load_ps(l), correction);
    for (int j = 0; j < n; j += 8) {
      __m256 e = exp_avx2(_mm256_sub_ps(_mm256_load_ps(p + j), m_new));
      e = _mm256_and_ps(e, _mm256_castsi256_ps(visible(n - j)));
      sum = _mm256_add_ps(sum, e);
      _mm256_store_ps(p + j, e);
    }
    _mm256_store_ps(l, sum);
    m = _mm256_cvtss_f32(m_new);
    return _mm256_cvtss_f32(correction);
  }

private:
  static __m256i visible(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

void attend_avx2(const QueryGroup& group, const KvHead& kv, float scale) {
  attend<Avx2>(group, kv, scale);
}

#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

struct Avx512 {
  template <int kRows>
  static void multiply_add(float* acc, int64_t acc_stride, const float* a, int64_t a_stride, int64_t k,
                           const float* b, int64_t b_stride, __mmask16 columns) {
    __m512 sum[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      sum[r] = _mm512_loadu_ps(acc + r * acc_stride);
    for (int64_t i = 0; i < k; ++i) {
      __m512 bi = _mm512_maskz_loadu_ps(columns, b + i * b_stride);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
        sum[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[r * a_stride + i]), bi, sum[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      _mm512_storeu_ps(acc + r * acc_stride, sum[r]);
  }

  static void multiply_add(int n, float* acc, int64_t acc_stride, const float* a, int64_t a_stride, int64_t k,
                           const float* b, int64_t b_stride, int64_t columns) {
    constexpr decltype(&multiply_add<1>) kRows[kQueries] = {multiply_add<1>, multiply_add<2>, multiply_add<3>,
                                                            multiply_add<4>, multiply_add<5>, multiply_add<6>,
                                                            multiply_add<7>, multiply_add<8>};
    kRows[n - 1](acc, acc_stride, a, a_stride, k, b, b_stride, visible(int(columns)));
  }

  static float softmax(float* p, int n, float& m, float* l) {
    __m512 top = _mm512_set1_ps(m);
    for (int j = 0; j < n; j += 16)
      top = _mm512_mask_max_ps(top, visible(n - j), top, _mm512_load_ps(p + j));
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, top);
    __m512 m_new = _mm512_set1_ps(*std::max_element(lanes, lanes + 16));

    __m512 correction = exp_avx512(_mm512_sub_ps(_mm512_set1_ps(m), m_new));
    __m512 sum = _mm512_mul_ps(_mm512_load_ps(l), correction);
    for (int j = 0; j < n; j += 16) {
      __m512 e = exp_avx512(_mm512_sub_ps(_mm512_load_ps(p + j), m_new));
      e = _mm512_maskz_mov_ps(visible(n - j), e);
      sum = _mm512_add_ps(sum, e);
      _mm512_store_ps(p + j, e);
    }
    _mm512_store_ps(l, sum);
    m = _mm512_cvtss_f32(m_new);
    return _mm512_cvtss_f32(correction);
  }

private:
  static __mmask16 visible(int n) {
    return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1);
  }
};

void attend_avx512(const QueryGroup& group, const KvHead& kv, float scale) {
  attend<Avx512>(group, kv, scale);
}

#pragma GCC pop_options

void attend_scalar(const QueryGroup& group, const KvHead& kv, float scale) {
  for (int r = 0; r < group.n; ++r)
    attend_scalar(group.query[r], group.blocks, kv, scale);
}

/// Where a group begins: a row, and one of the heads that share a kv head. end: of its sequence's rows.
struct GroupStart {
  int32_t row, head, end;
};

} // namespace

void attention(float* out, int64_t out_stride, const float* q, int64_t q_stride,
               std::span<const RowPlace> rows, const KvLayer& kv, const AttentionShape& shape,
               ThreadPool& pool, Isa isa) {
  assert(shape.head_dim <= kMaxHeadDim && shape.heads % shape.kv_heads == 0);
  auto path = isa == Isa::scalar ? static_cast<decltype(&attend_avx2)>(attend_scalar)
              : isa == Isa::avx2 ? attend_avx2
                                 : attend_avx512;
  const auto sharing = int32_t(shape.heads / shape.kv_heads); // heads that share a kv head

  thread_local std::vector<GroupStart> scratch;
  auto& starts = scratch; // tasks run on other threads, which have a `scratch` of their own
  starts.clear();
  for (int32_t row = 0, end; row < int32_t(rows.size()); row = end) {
    for (end = row + 1; end < int32_t(rows.size()) && rows[end].blocks == rows[row].blocks; ++end)
      assert(rows[end].position > rows[end - 1].position);
    for (int32_t i = 0; i < (end - row) * sharing; i += kQueries)
      starts.push_back({row + i / sharing, i % sharing, end});
  }

  pool.run(int(starts.size() * shape.kv_heads), [&](int i, int) {
    auto [row, head, end] = starts[size_t(i / shape.kv_heads)];
    KvHead kv_head{kv, i % shape.kv_heads, shape.head_dim};
    QueryGroup group{.query = {}, .n = 0, .blocks = rows[row].blocks};
    for (; group.n < kQueries && row < end; ++group.n) {
      int64_t at = (kv_head.head * sharing + head) * shape.head_dim;
      group.query[group.n] = {q + row * q_stride + at, out + row * out_stride + at, rows[row].position};
      if (++head == sharing)
        head = 0, ++row;
    }
    path(group, kv_head, shape.scale);
  });
}

} // namespace millrace
