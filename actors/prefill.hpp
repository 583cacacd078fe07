#pragma once

#include "actors/interfaces.hpp"
#include "actors/prompt_queue.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace millrace {

/// Reads prompts chunk by chunk. Spawn it detached: a pass keeps its thread.
///
///   idle ──work──▶ step in the mailbox ──pass──▶ (prompts complete: waits for the sampler) ──▶ next step, or idle
///
/// Between two passes everything in the mailbox has its turn, so a cancellation waits for at most one.
struct PrefillState {
  static inline const char* name = "prefill";

  explicit PrefillState(PrefillActor::stateful_pointer<PrefillState> self) : self(self) {}

  void schedule_step();
  void step();
  void hand_on(const LocalNextIds& next);

  PrefillActor::stateful_pointer<PrefillState> self;
  std::shared_ptr<Device> device;
  DispatchActor dispatch;
  DecodeActor decode;
  SamplerActor sampler;
  std::optional<PromptQueue> queue;
  std::shared_ptr<std::vector<float>> logits = std::make_shared<std::vector<float>>();
  bool step_in_flight = false; // in the mailbox, or its logits are with the sampler
};

/// chunk: rows of a pass.
PrefillActor::behavior_type prefill_actor(PrefillActor::stateful_pointer<PrefillState> self,
                                          std::shared_ptr<Device> device, int32_t chunk, DispatchActor dispatch,
                                          DecodeActor decode, SamplerActor sampler);

} // namespace millrace
