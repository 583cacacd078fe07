#include "actors/choice_sampler.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {
namespace {

SamplerParams to_params(const SamplingParams& sampling) {
  return {.temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .repetition_penalty = sampling.repetition_penalty,
          .frequency_penalty = sampling.frequency_penalty,
          .presence_penalty = sampling.presence_penalty,
          .logit_bias = sampling.logit_bias};
}

} // namespace

ChoiceSampler::ChoiceSampler(const Sequence& sequence, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), id_(sequence.id), max_tokens_(sequence.max_tokens), stop_ids_(sequence.stop_ids),
      ignore_eos_(sequence.ignore_eos), top_n_(sequence.logprobs.value_or(0)),
      emitted_elsewhere_(int64_t(sequence.emitted_ids.size())),
      sampler_(to_params(sequence.sampling), sequence.sampling.seed.value_or(0), sequence.id.choice,
               sequence.prompt_ids),
      matcher_(sequence.stop) {
  std::vector<SampledToken> told_before;
  for (TokenId id : sequence.emitted_ids) {
    if (ends(id) || take({.id = id, .logprob = 0, .top = {}}, told_before)) {
      reached_ = FinishReason::stop;
      break;
    }
  }
  if (reached_ == FinishReason::none && generated_ > 0 && generated_ >= max_tokens_)
    reached_ = FinishReason::length;
  assert(told_before.empty());
}

std::optional<Sampled> ChoiceSampler::reached_end() {
  if (reached_ == FinishReason::none)
    return std::nullopt;
  Sampled sampled;
  sampled.sequence = id_;
  return end(std::move(sampled), reached_).sampled;
}

ChoiceSampler::Outcome ChoiceSampler::draw(std::span<const float> logits) {
  Draw draw = sampler_.draw(logits, top_n_);
  Sampled sampled;
  sampled.sequence = id_;
  if (!draw.finite)
    return end(std::move(sampled), FinishReason::error, Error::non_finite_logits);
  if (ends(draw.id))
    return end(std::move(sampled), FinishReason::stop);

  const TokenId id = draw.id;
  if (take(describe(std::move(draw)), sampled.tokens))
    return end(std::move(sampled), FinishReason::stop);
  if (generated_ == max_tokens_)
    return end(std::move(sampled), FinishReason::length);
  return {id, std::move(sampled)};
}

bool ChoiceSampler::ends(TokenId id) const {
  return (!ignore_eos_ && tokenizer_.is_end_of_generation(id)) || std::ranges::find(stop_ids_, id) != stop_ids_.end();
}

bool ChoiceSampler::take(Drawn drawn, std::vector<SampledToken>& decided) {
  sampler_.accept(drawn.id);
  ++generated_;
  StopMatcher::Result result = matcher_.push(tokenizer_.bytes(drawn.id));
  undecided_.push_back(std::move(drawn));
  release(std::move(result.released), decided);
  return result.stopped;
}

// The matcher decides tokens in order, so what it releases is the front of what is undecided.
void ChoiceSampler::release(std::vector<ReleasedToken> released, std::vector<SampledToken>& decided) {
  for (ReleasedToken& token : released) {
    assert(token.index == generated_ - int64_t(undecided_.size()));
    Drawn drawn = std::move(undecided_.front());
    undecided_.pop_front();
    if (token.index < emitted_elsewhere_)
      continue;
    decided.push_back({.sequence = id_,
                       .index = token.index,
                       .id = drawn.id,
                       .bytes = {std::move(token.bytes)},
                       .text = std::move(token.text),
                       .logprob = drawn.logprob,
                       .top = std::move(drawn.top)});
  }
}

ChoiceSampler::Drawn ChoiceSampler::describe(Draw draw) const {
  Drawn drawn{.id = draw.id, .logprob = draw.logprob, .top = {}};
  for (const auto& [id, logprob] : draw.top)
    drawn.top.push_back({.id = id, .bytes = {std::string(tokenizer_.bytes(id))}, .logprob = logprob});
  return drawn;
}

ChoiceSampler::Outcome ChoiceSampler::end(Sampled sampled, FinishReason reason, Error error) {
  release(matcher_.finish(sampled.text), sampled.tokens);
  // A stop string that was complete, but might have been beaten by one that begins earlier.
  if (reason == FinishReason::length && matcher_.stopped())
    reason = FinishReason::stop;
  sampled.reason = to_string(reason);
  if (error != Error::none)
    sampled.error = to_string(error);
  const bool failed = error == Error::non_finite_logits;
  return {failed ? LocalNextIds::kFailed : LocalNextIds::kEnded, std::move(sampled)};
}

} // namespace millrace
