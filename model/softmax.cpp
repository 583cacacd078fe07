#include "model/softmax.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

// Floats as integers of the same order. Unlike a maximum of floats, one of integers may be taken in any
// order, so the loop vectorises; NaNs lie beyond both infinities.
int32_t ordered(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
float unordered(int32_t key) {
  return std::bit_cast<float>(key ^ ((key >> 31) & 0x7FFFFFFF));
}

} // namespace

Extent extent(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  int32_t highest = std::numeric_limits<int32_t>::min(), lowest = std::numeric_limits<int32_t>::max();
  for (const float logit : logits) {
    const int32_t key = ordered(logit);
    highest = std::max(highest, key);
    lowest = std::min(lowest, key);
  }
  const bool finite =
      highest < ordered(kInfinity) && highest > ordered(-kInfinity) && lowest >= ordered(-kInfinity);
  return finite ? Extent{unordered(highest), true} : Extent{};
}

size_t index_of(std::span<const float> logits, float value) {
  constexpr size_t kBlock = 64; // a search without branches inside
  size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    int found = 0;
    for (size_t j = 0; j < kBlock; ++j)
      found |= logits[i + j] == value;
    if (found)
      break;
  }
  while (logits[i] != value)
    ++i;
  return i;
}

double log_sum_exp(std::span<const float> logits) {
  constexpr size_t kLanes = 8, kBlock = 512;
  const Extent range = extent(logits);
  if (!range.finite)
    return std::numeric_limits<double>::quiet_NaN();
  const double max = range.max;
  std::array<double, kLanes> sums{};
  std::array<double, kBlock> powers;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < size; ++i)
      powers[i] = exp_nonpositive(logits[begin + i] - max);
    std::fill(powers.begin() + size, powers.end(), 0.0);
    for (size_t i = 0; i < kBlock; i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane)
        sums[lane] += powers[i + lane];
  }
  const double sum =
      ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  return max + std::log(sum);
}

} // namespace millrace
