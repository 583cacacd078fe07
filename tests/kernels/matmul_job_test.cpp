#include "kernels/matmul.hpp"
#include "tests/kernels/random_floats.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace millrace {
namespace {

constexpr int64_t kCols = 64;

/// Q8_0 blocks of random codes, each with the scale 2^-4.
std::vector<std::byte> random_weights(int64_t rows) {
  std::mt19937 random{1};
  std::vector<std::byte> bytes(size_t(rows) * row_bytes(DType::q8_0, kCols));
  for (auto& b : bytes)
    b = std::byte(random());
  const uint16_t scale = 0x2c00;
  for (size_t at = 0; at < bytes.size(); at += size_t(traits(DType::q8_0).bytes))
    std::memcpy(bytes.data() + at, &scale, sizeof scale);
  return bytes;
}

/// How a product is cut into tasks and where it goes, which no number in it may depend on.
class MatmulJob : public testing::TestWithParam<std::tuple<Isa, Activations>> {
protected:
  Isa isa = std::get<0>(GetParam());
  Activations activations = std::get<1>(GetParam());

  /// Packs w anew and gives the rows of out one after the other.
  std::vector<float> product(const std::vector<float>& x, const Matrix& w) const {
    ThreadPool pool{1};
    const PackedMatrix packed{w, isa, pool};
    ActivationRows inputs;
    const int64_t rows = int64_t(x.size()) / kCols;
    inputs.set(x.data(), rows, kCols, activations, isa);
    std::vector<float> out(size_t(rows * w.rows));
    matmul(out.data(), w.rows, inputs, packed, pool);
    return out;
  }
};

TEST_P(MatmulJob, CoversEveryOutputWhenATaskTakesManyTiles) {
  // 41 tiles: with one thread a task takes five and the last one takes one, which is partial.
  constexpr int64_t kOutputs = 16 * 40 + 5, kRows = 3;
  const auto bytes = random_weights(kOutputs);
  const Matrix w{DType::q8_0, kOutputs, kCols, bytes.data()};
  const auto x = random_floats(kRows * kCols, 2);
  for (int threads : {1, 2, 3}) {
    ThreadPool pool{threads};
    const PackedMatrix packed{w, isa, pool};
    ActivationRows inputs;
    inputs.set(x.data(), kRows, kCols, activations, isa);
    std::vector<float> out(kRows * kOutputs, -7);
    matmul(out.data(), kOutputs, inputs, packed, pool);

    for (int64_t n = 0; n < kOutputs; ++n) {
      const auto alone = product(x, {DType::q8_0, 1, kCols, w.row(n)});
      for (int64_t m = 0; m < kRows; ++m)
        ASSERT_EQ(out[size_t(m * kOutputs + n)], alone[size_t(m)])
            << "output " << n << ", row " << m << ", " << threads << " threads";
    }
  }
}

TEST_P(MatmulJob, LeavesWhatLiesBetweenTheRowsOfOut) {
  constexpr int64_t kOutputs = 21, kStride = 30, kRows = 19;
  const auto bytes = random_weights(kOutputs);
  const Matrix w{DType::q8_0, kOutputs, kCols, bytes.data()};
  const auto x = random_floats(kRows * kCols, 3);
  const auto expected = product(x, w);

  ThreadPool pool{1};
  const PackedMatrix packed{w, isa, pool};
  ActivationRows inputs;
  inputs.set(x.data(), kRows, kCols, activations, isa);
  std::vector<float> out(kRows * kStride, -7);
  matmul(out.data(), kStride, inputs, packed, pool);

  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t n = 0; n < kStride; ++n)
      ASSERT_EQ(out[size_t(m * kStride + n)], n < kOutputs ? expected[size_t(m * kOutputs + n)] : -7)
          << "row " << m << ", column " << n;
}

TEST_P(MatmulJob, ForgetsTheActivationsOfThePassBefore) {
  constexpr int64_t kOutputs = 17;
  const auto bytes = random_weights(kOutputs);
  const Matrix w{DType::q8_0, kOutputs, kCols, bytes.data()};
  ThreadPool pool{1};
  const PackedMatrix packed{w, isa, pool};
  ActivationRows inputs; // one for all passes; they grow and shrink
  uint32_t seed = 4;
  for (int64_t rows : {5, 1, 1, 40, 3, 17, 16}) {
    const auto x = random_floats(size_t(rows * kCols), seed++);
    inputs.set(x.data(), rows, kCols, activations, isa);
    std::vector<float> out(size_t(rows * kOutputs));
    matmul(out.data(), kOutputs, inputs, packed, pool);
    ASSERT_EQ(out, product(x, w)) << rows << " rows";
  }
}

TEST_P(MatmulJob, DoesNothingWithoutRowsOrOutputs) {
  const auto bytes = random_weights(16);
  const auto x = random_floats(kCols, 11);
  ThreadPool pool{2};
  const PackedMatrix some{{DType::q8_0, 16, kCols, bytes.data()}, isa, pool};
  const PackedMatrix none{{DType::q8_0, 0, kCols, bytes.data()}, isa, pool};
  std::vector<float> out(16, -7);
  ActivationRows inputs;
  inputs.set(x.data(), 0, kCols, activations, isa);
  matmul(out.data(), 16, inputs, some, pool);
  inputs.set(x.data(), 1, kCols, activations, isa);
  matmul(out.data(), 0, inputs, none, pool);
  EXPECT_EQ(out, std::vector<float>(16, -7));
}

std::string case_name(const testing::TestParamInfo<MatmulJob::ParamType>& info) {
  return std::string(to_string(std::get<0>(info.param))) +
         (std::get<1>(info.param) == Activations::q8 ? "_q8" : "_f32");
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, MatmulJob,
                         testing::Combine(testing::ValuesIn(available_isas().begin(), available_isas().end()),
                                          testing::Values(Activations::f32, Activations::q8)),
                         case_name);

} // namespace
} // namespace millrace
