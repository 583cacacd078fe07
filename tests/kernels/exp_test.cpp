#include "kernels/exp.hpp"

#include "kernels/isa.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace millrace {
namespace {

#pragma GCC push_options
#pragma GCC target("avx2,fma")
float first_lane_avx2(float x) {
  return _mm256_cvtss_f32(exp_avx2(_mm256_set1_ps(x)));
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
float first_lane_avx512(float x) {
  return _mm512_cvtss_f32(exp_avx512(_mm512_set1_ps(x)));
}
#pragma GCC pop_options

class Exp : public testing::TestWithParam<Isa> {
protected:
  static float exp(float x) { return GetParam() == Isa::avx2 ? first_lane_avx2(x) : first_lane_avx512(x); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Exp);

/// The scalar path uses std::exp.
std::vector<Isa> vector_isas() {
  std::vector<Isa> isas{available_isas().begin(), available_isas().end()};
  std::erase(isas, Isa::scalar);
  return isas;
}

TEST_P(Exp, IsWithinTwoUnitsInTheLastPlace) {
  for (double x = -87; x <= 88; x += 0.00173) {
    double exact = std::exp(double(float(x)));
    EXPECT_NEAR(exp(float(x)) / exact, 1, 2.4e-7) << x;
  }
}

TEST_P(Exp, IsExactlyOneAtZero) {
  EXPECT_EQ(exp(0.0f), 1.0f);
  EXPECT_EQ(exp(-0.0f), 1.0f);
}

TEST_P(Exp, StaysFiniteBeyondItsRange) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_LT(exp(-infinity), 2e-38f);
  EXPECT_GE(exp(-infinity), 0.0f);
  EXPECT_GT(exp(infinity), 1e38f);
  EXPECT_TRUE(std::isfinite(exp(infinity)));
}

TEST_P(Exp, KeepsNaN) {
  EXPECT_TRUE(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

INSTANTIATE_TEST_SUITE_P(, Exp, testing::ValuesIn(vector_isas()),
                         [](auto& info) { return to_string(info.param); });

} // namespace
} // namespace millrace
