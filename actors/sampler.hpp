#pragma once

#include "actors/choice_sampler.hpp"
#include "actors/interfaces.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <map>

namespace millrace {

/// Draws tokens for the sequences of one device.
struct SamplerState {
  static inline const char* name = "sampler";

  explicit SamplerState(SamplerActor::stateful_pointer<SamplerState> self) : self(self) {}

  LocalNextIds draw(const LocalLogits& logits);

  SamplerActor::stateful_pointer<SamplerState> self;
  std::shared_ptr<const Tokenizer> tokenizer;
  size_t vocab_size = 0; // width of the logits
  DispatchActor dispatch;
  std::map<SequenceId, ChoiceSampler> sequences;
};

SamplerActor::behavior_type sampler_actor(SamplerActor::stateful_pointer<SamplerState> self,
                                          std::shared_ptr<const Tokenizer> tokenizer, int32_t vocab_size,
                                          DispatchActor dispatch);

} // namespace millrace
