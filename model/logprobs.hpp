#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace millrace {

using TokenId = int32_t;

/// The smallest log-prob that is told: minus infinity is not a number in JSON.
inline constexpr float kMinLogprob = -9999;

/// A row of logits as the model's own distribution, before anything that sampling changes: natural logarithms
/// of its softmax, rounded once to float.
class Logprobs {
public:
  /// The logits must outlive this.
  explicit Logprobs(std::span<const float> logits);

  /// False where the logits are no distribution: one is NaN or +inf, or all are -inf. Nothing else may be
  /// asked then.
  bool finite() const;
  float of(TokenId id) const;
  /// The n most likely ids, most likely first, equal ones by id; all of them if there are fewer.
  std::vector<std::pair<TokenId, float>> most_likely(size_t n) const;

private:
  std::span<const float> logits_;
  double log_sum_;
};

} // namespace millrace
