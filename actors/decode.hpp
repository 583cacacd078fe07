#pragma once

#include "actors/interfaces.hpp"
#include "actors/scheduler/running_batch.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace millrace {

/// The loop of generation: a row of each sequence goes in, logits come out, the sampler chooses, its choices go in. Spawn it
/// detached: a pass keeps its thread.
///
///   idle ──sequence──▶ step in the mailbox ──pass──▶ waits for the sampler ──next ids──▶ next step, or idle
///
/// One step at most is in flight, so whatever arrives waits for at most one pass.
struct DecodeState {
  static inline const char* name = "decode";

  explicit DecodeState(DecodeActor::stateful_pointer<DecodeState> self) : self(self) {}

  void admit(LocalSequence sequence);
  void cancel(const SequenceId& id);
  void schedule_step();
  void step();
  void apply(const LocalNextIds& next);

  DecodeActor::stateful_pointer<DecodeState> self;
  std::shared_ptr<Device> device;
  SamplerActor sampler;
  PrefillActor prefill;
  RunningBatch batch;
  std::shared_ptr<std::vector<float>> logits = std::make_shared<std::vector<float>>();
  bool step_in_flight = false; // in the mailbox, or its logits are with the sampler
};

DecodeActor::behavior_type decode_actor(DecodeActor::stateful_pointer<DecodeState> self,
                                        std::shared_ptr<Device> device, SamplerActor sampler);

} // namespace millrace
