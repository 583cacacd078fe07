#include "actors/sampler.hpp"

#include "actors/exceptions.hpp"

namespace millrace {

LocalNextIds SamplerState::draw(const LocalLogits& logits) {
  LocalNextIds next;
  SampledBatch batch;
  for (size_t row = 0; row < logits.sequences.size(); ++row) {
    const auto sequence = sequences.find(logits.sequences[row]);
    if (sequence == sequences.end()) { // cancelled meanwhile
      next.ids.push_back(LocalNextIds::kEnded);
      continue;
    }
    auto outcome = sequence->second.draw(std::span(*logits.values).subspan(row * vocab_size, vocab_size));
    next.ids.push_back(outcome.next);
    if (outcome.next < 0)
      sequences.erase(sequence);
    if (!outcome.sampled.tokens.empty() || !outcome.sampled.reason.empty())
      batch.sequences.push_back(std::move(outcome.sampled));
  }
  if (!batch.sequences.empty())
    self->send(dispatch, std::move(batch));
  return next;
}

SamplerActor::behavior_type sampler_actor(SamplerActor::stateful_pointer<SamplerState> self,
                                          std::shared_ptr<const Tokenizer> tokenizer, int32_t vocab_size,
                                          DispatchActor dispatch) {
  die_with_text(self, Error::internal);
  auto& state = self->state;
  state.tokenizer = std::move(tokenizer);
  state.vocab_size = size_t(vocab_size);
  state.dispatch = std::move(dispatch);
  return {
      [=](const Sequence& sequence) {
        self->state.sequences.try_emplace(sequence.id, sequence, *self->state.tokenizer);
      },
      [=](const LocalLogits& logits) { return self->state.draw(logits); },
      [=](const CancelSequence& cancel) { self->state.sequences.erase(cancel.sequence); },
  };
}

} // namespace millrace
