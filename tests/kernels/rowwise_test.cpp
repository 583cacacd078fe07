// The ops that take a row by itself: rmsnorm, silu_multiply, add, rope.

#include "kernels/activation.hpp"
#include "kernels/rmsnorm.hpp"
#include "kernels/rope.hpp"
#include "random_floats.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

class Rowwise : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(, Rowwise, testing::ValuesIn(available_isas()),
                         [](auto& info) { return to_string(info.param); });

constexpr int64_t kMaxSize = 2 * 16 + 1; // two of the widest vectors and one

TEST_P(Rowwise, RmsnormMatchesDoubleForEverySizeAndAlignment) {
  for (int64_t dim = 1; dim <= kMaxSize; ++dim)
    for (int64_t offset : {0, 1, 3}) {
      auto x = random_floats(size_t(offset + 2 * dim), 1), weight = random_floats(size_t(offset + dim), 2);
      std::vector<float> out(size_t(offset + 2 * dim + 1), 7.0f);

      rmsnorm(&out[size_t(offset)], &x[size_t(offset)], &weight[size_t(offset)], 2, dim, 1e-5f, GetParam());

      for (int64_t r = 0; r < 2; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < dim; ++i)
          sum += std::pow(double(x[size_t(offset + r * dim + i)]), 2);
        for (int64_t i = 0; i < dim; ++i) {
          double want = x[size_t(offset + r * dim + i)] / std::sqrt(sum / double(dim) + 1e-5) *
                        weight[size_t(offset + i)];
          EXPECT_NEAR(out[size_t(offset + r * dim + i)], want, 1e-6 + 1e-6 * std::abs(want))
              << dim << ' ' << i;
        }
      }
      EXPECT_EQ(out.back(), 7.0f) << "wrote beyond the row";
    }
}

TEST_P(Rowwise, RmsnormWorksInPlaceAndAloneAsInABatch) {
  constexpr int64_t rows = 5, dim = 83;
  auto x = random_floats(rows * dim, 3), weight = random_floats(dim, 4);
  std::vector<float> batch(rows * dim), alone(dim);
  rmsnorm(batch.data(), x.data(), weight.data(), rows, dim, 1e-6f, GetParam());
  for (int64_t r = 0; r < rows; ++r) {
    rmsnorm(alone.data(), &x[size_t(r * dim)], weight.data(), 1, dim, 1e-6f, GetParam());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), batch.begin() + r * dim));
  }
  rmsnorm(x.data(), x.data(), weight.data(), rows, dim, 1e-6f, GetParam());
  EXPECT_EQ(x, batch);
}

TEST_P(Rowwise, SiluMultiplyMatchesDoubleForEverySizeAndAlignment) {
  for (int64_t n = 0; n <= kMaxSize; ++n)
    for (int64_t offset : {0, 1, 3}) {
      auto gate = random_floats(size_t(offset + n), 5, 20), up = random_floats(size_t(offset + n), 6);
      std::vector<float> out(size_t(offset + n + 1), 7.0f);

      silu_multiply(out.data() + offset, gate.data() + offset, up.data() + offset, n, GetParam());

      for (size_t i = size_t(offset); i < size_t(offset + n); ++i) {
        double want = double(gate[i]) / (1 + std::exp(-double(gate[i]))) * double(up[i]);
        EXPECT_NEAR(out[i], want, 1e-6 * std::abs(want) + 1e-12) << gate[i];
      }
      EXPECT_EQ(out.back(), 7.0f) << "wrote beyond the end";
    }
}

TEST_P(Rowwise, SiluMultiplyGivesTheSameBitsWhereverTheArrayIsCut) {
  constexpr int64_t n = 61;
  auto gate = random_floats(n, 7, 9), up = random_floats(n, 8);
  std::vector<float> whole(n);
  silu_multiply(whole.data(), gate.data(), up.data(), n, GetParam());
  for (int64_t cut = 0; cut <= n; ++cut) {
    std::vector<float> parts = gate; // in place
    silu_multiply(parts.data(), parts.data(), up.data(), cut, GetParam());
    silu_multiply(parts.data() + cut, parts.data() + cut, up.data() + cut, n - cut, GetParam());
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST_P(Rowwise, SiluMultiplyIsFiniteForLargeGates) {
  std::vector<float> gate{-1e30f, -200, -88, 88, 200, 1e30f}, up(6, 1.0f), out(6);
  silu_multiply(out.data(), gate.data(), up.data(), 6, GetParam());
  EXPECT_NEAR(out[0], 0, 1e-7);
  EXPECT_NEAR(out[1], 0, 1e-30);
  EXPECT_NEAR(out[2], 0, 1e-30);
  EXPECT_EQ(out[3], 88);
  EXPECT_EQ(out[4], 200);
  EXPECT_EQ(out[5], 1e30f);
}

TEST(Add, AddsEverySize) {
  for (int64_t n = 0; n <= kMaxSize; ++n) {
    auto x = random_floats(size_t(n) + 1, 9), y = random_floats(size_t(n), 10), want = x;
    for (size_t i = 0; i < size_t(n); ++i)
      want[i] += y[i];
    add(x.data(), y.data(), n);
    EXPECT_EQ(x, want);
  }
}

struct RopeCase {
  int64_t head_dim, dim;
  RopeStyle style;
};

TEST_P(Rowwise, RopeTurnsThePairsOfItsStyle) {
  for (auto [head_dim, dim, style] :
       {RopeCase{2, 2, RopeStyle::halves}, RopeCase{8, 8, RopeStyle::interleaved},
        RopeCase{64, 64, RopeStyle::halves}, RopeCase{80, 34, RopeStyle::halves},
        RopeCase{80, 50, RopeStyle::interleaved}}) {
    constexpr int64_t heads = 3;
    const std::vector<int32_t> positions{0, 1, 99};
    std::vector<float> factors(size_t(dim / 2), 1.0f);
    factors.back() = 4;
    RopeTable table{100, dim, 500000, factors};
    int64_t stride = heads * head_dim + 5;
    auto x = random_floats(size_t(3 * stride), 11), before = x;

    rope(x.data(), stride, positions.data(), 3, heads, head_dim, table, style, GetParam());

    for (int64_t r = 0; r < 3; ++r)
      for (int64_t h = 0; h < heads; ++h) {
        size_t head = size_t(r * stride + h * head_dim);
        for (int64_t i = 0; i < dim / 2; ++i) {
          double angle =
              positions[size_t(r)] * std::pow(500000.0, -2.0 * double(i) / double(dim)) / factors[size_t(i)];
          size_t a = head + size_t(style == RopeStyle::halves ? i : 2 * i);
          size_t b = head + size_t(style == RopeStyle::halves ? i + dim / 2 : 2 * i + 1);
          EXPECT_NEAR(x[a], before[a] * std::cos(angle) - before[b] * std::sin(angle), 3e-7);
          EXPECT_NEAR(x[b], before[a] * std::sin(angle) + before[b] * std::cos(angle), 3e-7);
        }
        for (size_t i = head + size_t(dim); i < head + size_t(head_dim); ++i)
          EXPECT_EQ(x[i], before[i]) << "turned beyond the table's dim";
      }
  }
}

TEST_P(Rowwise, RopeGivesTheBitsOfTheReference) {
  constexpr int64_t heads = 2, head_dim = 48;
  const std::vector<int32_t> positions{7, 31};
  for (auto style : {RopeStyle::halves, RopeStyle::interleaved}) {
    RopeTable table{32, head_dim, 10000, {}};
    auto x = random_floats(2 * heads * head_dim, 12), reference = x;
    rope(x.data(), heads * head_dim, positions.data(), 2, heads, head_dim, table, style, GetParam());
    rope(reference.data(), heads * head_dim, positions.data(), 2, heads, head_dim, table, style, Isa::scalar);
    EXPECT_EQ(x, reference);
  }
}

} // namespace
} // namespace millrace
