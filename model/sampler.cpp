#include "model/sampler.hpp"

#include "model/philox.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

/// Brings what a penalty has thrown out of a float's range back to its end; a masked token stays masked.
float clamp_finite(float logit) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(logit, -kLargest, kLargest);
}

} // namespace

Sampler::Sampler(SamplerParams params, uint64_t seed, int32_t choice, std::span<const TokenId> prompt_ids)
    : params_(std::move(params)), seed_(seed), choice_(choice) {
  if (params_.repetition_penalty == 1)
    return; // nothing else asks for the prompt
  for (const TokenId id : prompt_ids)
    see(id);
}

Sampler::Seen& Sampler::see(TokenId id) {
  const auto [place, inserted] = places_.try_emplace(id, seen_.size());
  if (inserted)
    seen_.push_back({id, 0});
  return seen_[place->second];
}

void Sampler::accept(TokenId id) {
  ++see(id).output_count;
  ++index_;
}

std::span<const float> Sampler::adjust(std::span<const float> logits) {
  const bool repetition = params_.repetition_penalty != 1;
  const bool counts = params_.frequency_penalty != 0 || params_.presence_penalty != 0;
  if (params_.logit_bias.empty() && !repetition && !counts)
    return logits;

  logits_.assign(logits.begin(), logits.end());
  const auto change = [&](TokenId id, auto operation) {
    if (id < 0 || static_cast<size_t>(id) >= logits_.size())
      return;
    float& logit = logits_[static_cast<size_t>(id)];
    if (std::isfinite(logit))
      logit = clamp_finite(operation(logit));
  };
  for (const auto& [id, bias] : params_.logit_bias)
    change(id, [bias](float l) { return l + bias; });
  if (!repetition && !counts)
    return logits_;
  for (const auto& [id, count] : seen_) {
    const float r = params_.repetition_penalty;
    if (repetition)
      change(id, [r](float l) { return l < 0 ? l * r : l / r; });
    const float penalty =
        params_.frequency_penalty * static_cast<float>(count) + (count > 0 ? params_.presence_penalty : 0);
    if (penalty != 0)
      change(id, [penalty](float l) { return l - penalty; });
  }
  return logits_;
}

void Sampler::rank(std::span<const float> logits) {
  ranking_.rank(logits, extent(logits).max, params_.temperature);
  if (params_.top_k > 0)
    ranking_.keep_count(params_.top_k);
  if (params_.top_p < 1)
    ranking_.keep_mass(params_.top_p);
  if (params_.min_p > 0)
    ranking_.keep_share_of_max(params_.min_p);
}

Draw Sampler::draw(std::span<const float> logits, int top_n) {
  Draw draw;
  draw.finite = extent(logits).finite;
  if (!draw.finite)
    return draw;

  const auto adjusted = adjust(logits);
  if (params_.temperature == 0) {
    draw.id = static_cast<TokenId>(index_of(adjusted, extent(adjusted).max));
  } else {
    rank(adjusted);
    draw.id = ranking_.pick(philox_uniform(seed_, static_cast<uint64_t>(index_),
                                           static_cast<uint32_t>(choice_), DrawPurpose::token));
  }
  const Logprobs logprobs(logits);
  draw.logprob = logprobs.of(draw.id);
  draw.top = logprobs.most_likely(static_cast<size_t>(std::max(top_n, 0)));
  return draw;
}

std::vector<Candidate> Sampler::distribution(std::span<const float> logits) {
  if (!extent(logits).finite)
    return {};
  const auto adjusted = adjust(logits);
  if (params_.temperature == 0)
    return {{static_cast<TokenId>(index_of(adjusted, extent(adjusted).max)), 1.0f}};
  rank(adjusted);
  return ranking_.kept();
}

} // namespace millrace
