#include "kernels/matmul.hpp"

#include "kernels/dequantize.hpp"
#include "kernels/tiles.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace millrace {
namespace {

constexpr DType kTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                            DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl,
                            DType::iq4_xs};

uint16_t small_f16(std::mt19937& rng) { return uint16_t(0x2400 | (rng() & 0x3ff)); } // 0.016 … 0.031

/// Rows of random blocks whose values are of the order of one.
struct RandomMatrix {
  RandomMatrix(DType type, int64_t rows, int64_t cols, unsigned seed) : bytes(size_t(rows) * row_bytes(type, cols) + 1) {
    std::mt19937 rng{seed};
    std::byte* data = bytes.data() + 1; // an odd address, as in a file
    matrix = {type, rows, cols, data};
    const auto put = [&](size_t at, uint16_t value) { std::memcpy(data + at, &value, 2); };
    if (type == DType::f32) {
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < rows * cols; ++i) {
        const float value = normal(rng);
        std::memcpy(data + 4 * i, &value, 4);
      }
      return;
    }
    if (!is_quantised(type)) {
      for (int64_t i = 0; i < rows * cols; ++i)
        put(size_t(2 * i), uint16_t((rng() & 0x83ff) | (type == DType::f16 ? 0x3800 : 0x3f00)));
      return;
    }
    for (size_t i = 0; i + 1 < bytes.size(); ++i) data[i] = std::byte(rng());
    const size_t block = size_t(traits(type).bytes);
    for (size_t at = 0; at + 1 < bytes.size(); at += block) {
      switch (type) { // scales at their places
      case DType::q2_k: put(at + 80, small_f16(rng)); put(at + 82, small_f16(rng)); break;
      case DType::q3_k: put(at + 108, small_f16(rng)); break;
      case DType::q6_k: put(at + 208, small_f16(rng)); break;
      case DType::q4_1: case DType::q5_1: case DType::q4_k: case DType::q5_k:
        put(at, small_f16(rng));
        put(at + 2, small_f16(rng));
        break;
      default: put(at, small_f16(rng));
      }
    }
  }
  std::vector<std::byte> bytes;
  Matrix matrix;
};

std::vector<float> random_rows(int64_t rows, int64_t cols, unsigned seed) {
  std::mt19937 rng{seed};
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& v : x) v = normal(rng);
  return x;
}

std::vector<float> product(const std::vector<float>& x, int64_t rows, const Matrix& w, Activations activations, Isa isa,
                           int threads = 1) {
  ThreadPool pool{threads};
  PackedMatrix packed{w, isa, pool};
  ActivationRows inputs;
  inputs.set(x.data(), rows, w.cols, activations, isa);
  std::vector<float> out(static_cast<size_t>(rows * w.rows), -1);
  matmul(out.data(), w.rows, inputs, packed, pool);
  return out;
}

/// Sums in double, of the dequantised weights and of x rounded as `activations` says; and the sum of magnitudes, which bounds the rounding.
struct Exact {
  double value = 0, magnitude = 0;
};
Exact exact_product(const float* x, const Matrix& w, int64_t n, bool q8) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  dequantize(row.data(), w.row(n), w.cols, w.type);
  Exact sum;
  float scale = 1;
  for (int64_t k = 0; k < w.cols; ++k) {
    double value = x[k];
    if (q8) {
      if (k % kRun == 0) {
        scale = 0;
        for (int i = 0; i < kRun; ++i) scale = std::max(scale, std::fabs(x[k + i]));
      }
      value = double(std::nearbyintf(x[k] * (127.0f / scale))) * (scale / 127.0f);
    }
    sum.value += row[size_t(k)] * value;
    sum.magnitude += std::fabs(row[size_t(k)] * value);
  }
  return sum;
}

bool same_bits(const float* a, const float* b, int64_t n) { return std::memcmp(a, b, size_t(n) * sizeof(float)) == 0; }

class Matmul : public testing::TestWithParam<std::tuple<DType, Isa>> {
protected:
  DType type = std::get<0>(GetParam());
  Isa isa = std::get<1>(GetParam());

  std::vector<int64_t> widths() const {
    if (!is_quantised(type)) return {1, 7, 33, 64, 172};
    const int block = traits(type).values;
    return {block, 3 * block, 896 / block * block};
  }
};

TEST_P(Matmul, AgreesWithTheExactSums) {
  for (int64_t cols : widths())
    for (int64_t outputs : {1, 15, 16, 17, 48})
      for (int64_t rows : {1, 2, 3, 5, 8, 17, 37})
        for (auto activations : {Activations::f32, Activations::q8}) {
          const RandomMatrix w{type, outputs, cols, unsigned(cols * 100 + outputs)};
          auto x = random_rows(rows, cols, unsigned(rows));
          const bool q8 = activations == Activations::q8 && isa != Isa::scalar && is_quantised(type);

          const auto out = product(x, rows, w.matrix, activations, isa);

          for (int64_t m = 0; m < rows; m += std::max<int64_t>(1, rows / 4))
            for (int64_t n = 0; n < outputs; ++n) {
              const Exact exact = exact_product(x.data() + m * cols, w.matrix, n, q8);
              ASSERT_NEAR(out[size_t(m * outputs + n)], exact.value, 1e-6 + 2e-6 * exact.magnitude)
                << cols << " columns, output " << n << " of " << outputs << ", row " << m << " of " << rows
                << (q8 ? ", 8-bit" : ", float");
            }
        }
}

TEST_P(Matmul, GivesARowTheSameBitsWhateverComesWithIt) {
  const int64_t cols = widths().back(), outputs = 40, rows = 64;
  const RandomMatrix w{type, outputs, cols, 5};
  const auto x = random_rows(rows, cols, 6);
  for (auto activations : {Activations::f32, Activations::q8}) {
    const auto together = product(x, rows, w.matrix, activations, isa);
    EXPECT_EQ(together, product(x, rows, w.matrix, activations, isa, 2)) << "two threads";
    for (int64_t m = 0; m < rows; ++m) {
      const std::vector<float> row(x.begin() + m * cols, x.begin() + (m + 1) * cols);
      const auto alone = product(row, 1, w.matrix, activations, isa);
      ASSERT_TRUE(same_bits(alone.data(), together.data() + m * outputs, outputs)) << "row " << m;
    }
    for (int64_t part : {2, 4, 7, 15, 33}) {
      const std::vector<float> some(x.begin() + 3 * cols, x.begin() + (3 + part) * cols);
      const auto apart = product(some, part, w.matrix, activations, isa);
      ASSERT_TRUE(same_bits(apart.data(), together.data() + 3 * outputs, part * outputs)) << part << " rows";
    }
  }
}

TEST_P(Matmul, GivesTheSameBitsOnEverySimdPath) {
  if (isa == Isa::scalar) return; // the reference rounds after each product
  const int64_t cols = widths().back(), outputs = 24, rows = 21;
  const RandomMatrix w{type, outputs, cols, 7};
  const auto x = random_rows(rows, cols, 8);
  for (auto activations : {Activations::f32, Activations::q8})
    EXPECT_EQ(product(x, rows, w.matrix, activations, isa), product(x, rows, w.matrix, activations, Isa::avx2));
}

TEST_P(Matmul, CarriesWhatIsNotANumberToItsRowOnly) {
  const int64_t cols = widths().back(), outputs = 16;
  const RandomMatrix w{type, outputs, cols, 9};
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (auto activations : {Activations::f32, Activations::q8}) {
      auto x = random_rows(3, cols, 10);
      x[size_t(cols + cols / 2)] = bad;

      const auto out = product(x, 3, w.matrix, activations, isa);

      for (int64_t n = 0; n < outputs; ++n) {
        EXPECT_TRUE(std::isfinite(out[size_t(n)]));
        EXPECT_FALSE(std::isfinite(out[size_t(outputs + n)]));
        EXPECT_TRUE(std::isfinite(out[size_t(2 * outputs + n)]));
      }
    }
}

TEST_P(Matmul, TakesActivationsOfAnySize) {
  const int64_t cols = widths().back(), outputs = 16;
  const RandomMatrix w{type, outputs, cols, 11};
  for (float size : {0.0f, 1e-44f, 1e-30f, 1e30f}) {
    const std::vector<float> x(size_t(cols), size);
    const auto out = product(x, 1, w.matrix, Activations::q8, isa);
    for (float v : out) EXPECT_TRUE(std::isfinite(v)) << size;
  }
}

std::string case_name(const testing::TestParamInfo<Matmul::ParamType>& info) {
  return std::string(traits(std::get<0>(info.param)).name) + "_" + to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(EveryTypeAndIsa, Matmul,
                         testing::Combine(testing::ValuesIn(kTypes),
                                          testing::ValuesIn(available_isas().begin(), available_isas().end())),
                         case_name);

TEST(PackedMatrix, TakesAboutTheBytesOfTheFile) {
  if (available_isas().size() == 1) GTEST_SKIP() << "this machine has no SIMD path";
  ThreadPool pool{1};
  for (DType type : {DType::q4_0, DType::q4_k, DType::q5_0, DType::q5_k, DType::q6_k, DType::q8_0, DType::f16}) {
    const RandomMatrix w{type, 32, 1024, 1};
    const PackedMatrix packed{w.matrix, available_isas().front(), pool};
    EXPECT_LE(double(packed.bytes()), 1.03 * double(32 * row_bytes(type, 1024))) << traits(type).name;
  }
}

} // namespace
} // namespace millrace
