#include "model/logprobs.hpp"

#include "model/softmax.hpp"

#include <algorithm>
#include <cmath>

namespace millrace {

Logprobs::Logprobs(std::span<const float> logits) : logits_(logits), log_sum_(log_sum_exp(logits)) {}

bool Logprobs::finite() const {
  return std::isfinite(log_sum_);
}

float Logprobs::of(TokenId id) const {
  return std::max(kMinLogprob, static_cast<float>(logits_[static_cast<size_t>(id)] - log_sum_));
}

std::vector<std::pair<TokenId, float>> Logprobs::most_likely(size_t n) const {
  std::vector<std::pair<TokenId, float>> top;
  n = std::min(n, logits_.size());
  if (n == 0)
    return top;
  top.reserve(n + 1);
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (top.size() == n && logits_[i] <= top.back().second)
      continue;
    const auto place = std::upper_bound(top.begin(), top.end(), logits_[i],
                                        [](float logit, const auto& entry) { return logit > entry.second; });
    top.insert(place, {static_cast<TokenId>(i), logits_[i]});
    if (top.size() > n)
      top.pop_back();
  }
  for (auto& [id, value] : top)
    value = of(id);
  return top;
}

} // namespace millrace
