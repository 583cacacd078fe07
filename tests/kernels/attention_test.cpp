#include "kernels/attention.hpp"

#include "random_floats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace millrace {
namespace {

/// One sequence: all of its queries, keys and values.
struct Sequence {
  Sequence(int length, const AttentionShape& shape, uint32_t seed)
      : length{length}, q{random_floats(size_t(length * shape.heads * shape.head_dim), seed, 2)},
        k{random_floats(size_t(length * shape.kv_heads * shape.head_dim), seed + 1, 2)},
        v{random_floats(size_t(length * shape.kv_heads * shape.head_dim), seed + 2)} {}

  int length;
  std::vector<float> q, k, v;
};

/// A pool of blocks, all of it NaN until something is stored: whoever reads a stale slot is found out.
struct Cache {
  Cache(int blocks, const AttentionShape& shape)
      : stride{2 * shape.kv_heads * shape.head_dim * kBlockSize + 32},
        floats(size_t(blocks * stride), std::numeric_limits<float>::quiet_NaN()) {}

  KvLayer layer(const AttentionShape& shape) {
    return {floats.data(), floats.data() + shape.kv_heads * shape.head_dim * kBlockSize, stride};
  }

  int64_t stride;
  std::vector<float> floats;
};

/// Runs a sequence from `begin` to `end` in one pass: stores, then attends.
void run(std::vector<float>& out, const Sequence& s, int begin, int end, const std::vector<int32_t>& blocks,
         Cache& cache, const AttentionShape& shape, ThreadPool& pool, Isa isa) {
  std::vector<RowPlace> rows;
  for (int p = begin; p < end; ++p)
    rows.push_back({p, blocks.data()});
  int64_t q_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  store_kv(cache.layer(shape), &s.k[size_t(begin * kv_width)], &s.v[size_t(begin * kv_width)], kv_width, rows,
           shape);
  attention(&out[size_t(begin * q_width)], q_width, &s.q[size_t(begin * q_width)], q_width, rows,
            cache.layer(shape), shape, pool, isa);
}

std::vector<int32_t> ascending_blocks(int length) {
  std::vector<int32_t> blocks(size_t((length + kBlockSize - 1) / kBlockSize));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

/// All rows of s in one pass, blocks in order.
std::vector<float> run_whole(const Sequence& s, const AttentionShape& shape, Isa isa, int threads = 1) {
  ThreadPool pool{threads};
  auto blocks = ascending_blocks(s.length);
  Cache cache{int(blocks.size()), shape};
  std::vector<float> out(s.q.size());
  run(out, s, 0, s.length, blocks, cache, shape, pool, isa);
  return out;
}

/// The definition, in double.
double expected(const Sequence& s, const AttentionShape& shape, int64_t row, int64_t head, int64_t d) {
  int64_t g = head / (shape.heads / shape.kv_heads);
  std::vector<double> score;
  for (int64_t j = 0; j <= row; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < shape.head_dim; ++i)
      sum += double(s.q[size_t((row * shape.heads + head) * shape.head_dim + i)]) *
             double(s.k[size_t((j * shape.kv_heads + g) * shape.head_dim + i)]);
    score.push_back(shape.scale * sum);
  }
  double max = *std::max_element(score.begin(), score.end()), sum = 0, value = 0;
  for (int64_t j = 0; j <= row; ++j) {
    double p = std::exp(score[size_t(j)] - max);
    sum += p;
    value += p * double(s.v[size_t((j * shape.kv_heads + g) * shape.head_dim + d)]);
  }
  return value / sum;
}

class Attention : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(, Attention, testing::ValuesIn(available_isas()),
                         [](auto& info) { return to_string(info.param); });

TEST_P(Attention, MatchesTheDefinitionForEveryLength) {
  const AttentionShape shape{4, 2, 16, 0.25f};
  for (int length = 1; length <= 70; ++length) {
    Sequence s{length, shape, uint32_t(length)};
    auto out = run_whole(s, shape, GetParam());
    for (int64_t row : {0, length / 2, length - 1})
      for (int64_t h = 0; h < shape.heads; ++h)
        for (int64_t d = 0; d < shape.head_dim; ++d)
          ASSERT_NEAR(out[size_t((row * shape.heads + h) * shape.head_dim + d)],
                      expected(s, shape, row, h, d), 2e-6)
              << "length " << length << " row " << row << " head " << h << " d " << d;
  }
}

TEST_P(Attention, MatchesTheDefinitionForEveryShape) {
  for (int64_t group : {1, 2, 7, 9})
    for (int64_t kv_heads : {1, 2})
      for (int64_t head_dim : {8, 16, 20, 32, 64, 80, 128}) {
        const AttentionShape shape{group * kv_heads, kv_heads, head_dim, 1 / std::sqrt(float(head_dim))};
        Sequence s{70, shape, uint32_t(head_dim + group)};
        auto out = run_whole(s, shape, GetParam());
        for (int64_t row : {0, 1, 15, 16, 40, 63, 64, 69})
          for (int64_t h = 0; h < shape.heads; ++h)
            for (int64_t d = 0; d < head_dim; ++d)
              ASSERT_NEAR(out[size_t((row * shape.heads + h) * head_dim + d)], expected(s, shape, row, h, d),
                          3e-6)
                  << group << " heads a kv head, head_dim " << head_dim << ", row " << row;
      }
}

TEST_P(Attention, IsBitEqualInChunks) {
  const AttentionShape shape{6, 2, 24, 0.2f};
  Sequence s{150, shape, 1};
  auto whole = run_whole(s, shape, GetParam());
  ThreadPool pool{1};
  for (int chunk : {1, 3, 16, 64, 100}) {
    auto blocks = ascending_blocks(s.length);
    Cache cache{int(blocks.size()), shape};
    std::vector<float> out(whole.size());
    for (int begin = 0; begin < s.length; begin += chunk)
      run(out, s, begin, std::min(begin + chunk, s.length), blocks, cache, shape, pool, GetParam());
    EXPECT_EQ(out, whole) << "chunks of " << chunk;
  }
}

TEST_P(Attention, IsBitEqualWhereverTheBlocksLie) {
  const AttentionShape shape{3, 1, 64, 0.125f};
  Sequence s{100, shape, 2};
  ThreadPool pool{1};
  Cache cache{20, shape};
  std::vector<float> out(s.q.size());
  run(out, s, 0, s.length, {19, 3, 4, 0, 11, 17, 2}, cache, shape, pool, GetParam());
  EXPECT_EQ(out, run_whole(s, shape, GetParam()));
}

TEST_P(Attention, IsBitEqualForAnyNumberOfThreads) {
  const AttentionShape shape{8, 4, 32, 0.2f};
  Sequence s{130, shape, 3};
  auto one = run_whole(s, shape, GetParam(), 1);
  for (int threads : {2, 3, 5})
    EXPECT_EQ(run_whole(s, shape, GetParam(), threads), one);
}

TEST_P(Attention, IsBitEqualBesideOtherSequences) {
  const AttentionShape shape{7, 1, 16, 0.25f};
  const std::vector<int> lengths{33, 1, 70, 16, 17, 64};
  ThreadPool pool{2};
  int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;

  std::vector<Sequence> sequences;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<float> q, k, v;
  int32_t next_block = 0;
  for (int length : lengths) {
    const Sequence& s = sequences.emplace_back(length, shape, uint32_t(length));
    for (auto& b = blocks.emplace_back(ascending_blocks(length)); auto& id : b)
      id = next_block++;
    q.insert(q.end(), s.q.begin(), s.q.end());
    k.insert(k.end(), s.k.begin(), s.k.end());
    v.insert(v.end(), s.v.begin(), s.v.end());
  }
  std::vector<RowPlace> rows;
  for (size_t i = 0; i < lengths.size(); ++i)
    for (int p = 0; p < lengths[i]; ++p)
      rows.push_back({p, blocks[i].data()});
  Cache cache{next_block, shape};
  std::vector<float> out(q.size());
  store_kv(cache.layer(shape), k.data(), v.data(), kv_width, rows, shape);
  attention(out.data(), width, q.data(), width, rows, cache.layer(shape), shape, pool, GetParam());

  size_t at = 0;
  for (const Sequence& s : sequences) {
    auto alone = run_whole(s, shape, GetParam());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.begin() + int64_t(at))) << "length " << s.length;
    at += alone.size();
  }
}

TEST_P(Attention, KeepsTheNaNOfALaterRowFromEarlierOnes) {
  const AttentionShape shape{1, 1, 16, 0.25f}; // rows share the loads of keys and values
  Sequence s{40, shape, 4};
  auto clean = run_whole(s, shape, GetParam());
  for (int64_t d = 0; d < 16; ++d)
    s.k[size_t(20 * 16 + d)] = s.v[size_t(20 * 16 + d)] = std::numeric_limits<float>::quiet_NaN();
  auto out = run_whole(s, shape, GetParam());
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 20 * 16, clean.begin()));
  EXPECT_TRUE(std::all_of(out.begin() + 20 * 16, out.end(), [](float x) { return std::isnan(x); }));
}

TEST_P(Attention, SurvivesScoresFarApart) {
  const AttentionShape shape{1, 1, 8, 1};
  Sequence s{66, shape, 5};
  for (auto& x : s.q)
    x = 30;
  for (int64_t j = 0; j < 66; ++j)
    for (int64_t d = 0; d < 8; ++d)
      s.k[size_t(j * 8 + d)] = float(j - 33); // scores from -7920 to 7680, rising
  auto out = run_whole(s, shape, GetParam());
  for (int64_t row : {0, 15, 16, 65})
    for (int64_t d = 0; d < 8; ++d)
      EXPECT_NEAR(out[size_t(row * 8 + d)], s.v[size_t(row * 8 + d)], 1e-6);
}

} // namespace
} // namespace millrace
