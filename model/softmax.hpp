#pragma once

// The exponentials behind every distribution, in double and in a fixed order: plain loops that any compiler
// turns into the same operations for every instruction set, so a log-prob has the same bits on every machine.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace {

/// exp(x) for x <= 0 with a relative error below 3e-10, far under a float's rounding; 0 below -708 and for
/// -inf.
inline double exp_nonpositive(double x) {
  constexpr double kLog2e = 0x1.71547652b82fep+0, kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kRound = 0x1.8p52; // adding it leaves the nearest integer in the lowest bits
  const double shifted = x * kLog2e + kRound;
  const double n = shifted - kRound;
  const double r = x - n * kLn2; // |r| <= ln(2) / 2
  // Taylor's series up to r^8, in Estrin's order: Horner's is one chain of operations that wait for each
  // other.
  const double r2 = r * r, r4 = r2 * r2;
  const double low = (1.0 + r) + (1.0 / 2 + r * (1.0 / 6)) * r2;
  const double high = (1.0 / 24 + r * (1.0 / 120)) + (1.0 / 720 + r * (1.0 / 5040)) * r2;
  const double sum = low + (high + r4 * (1.0 / 40320)) * r4;
  const uint64_t power = std::bit_cast<uint64_t>(sum) + (std::bit_cast<uint64_t>(shifted) << 52);
  return x >= -708.0 ? std::bit_cast<double>(power) : 0.0;
}

struct Extent {
  float max = 0;
  bool finite = false; // false: a logit is NaN or +inf, or all are -inf, or there are none
};
/// The largest logit. -inf is a masked token and in order.
Extent extent(std::span<const float> logits);

/// The first index of this value, which must be there.
size_t index_of(std::span<const float> logits, float value);

/// ln(sum(exp(logits))), in double, in a fixed order. NaN where extent() is not finite.
double log_sum_exp(std::span<const float> logits);

} // namespace millrace
