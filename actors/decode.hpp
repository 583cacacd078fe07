#pragma once

#include "actors/interfaces.hpp"
#include "actors/scheduler/cancelled_ahead.hpp"
#include "actors/scheduler/running_batch.hpp"
#include "actors/scheduler/step_budget.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <chrono>
#include <optional>

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
  void cancel(const CancelSequence& cancel);
  void yield(const SequenceId& id);
  /// Tells who has to know that a sequence is to be read again, and that its blocks are free.
  void tell_preempted(const SequenceId& id, bool yielded);
  /// After sequences have come or gone.
  void note_size() { budget->set_decoding(int32_t(batch->size())); }
  void schedule_step();
  void step();
  void apply(const LocalNextIds& next);

  DecodeActor::stateful_pointer<DecodeState> self;
  std::shared_ptr<Device> device;
  SamplerActor sampler;
  PrefillActor prefill;
  DispatchActor dispatch;
  std::shared_ptr<StepBudget> budget;
  std::optional<RunningBatch> batch;
  CancelledAhead cancelled;
  std::chrono::steady_clock::time_point passed; // the end of the step's pass
  std::shared_ptr<std::vector<float>> logits = std::make_shared<std::vector<float>>();
  bool step_in_flight = false; // in the mailbox, or its logits are with the sampler
};

DecodeActor::behavior_type decode_actor(DecodeActor::stateful_pointer<DecodeState> self,
                                        std::shared_ptr<Device> device, std::shared_ptr<StepBudget> budget,
                                        DispatchActor dispatch, SamplerActor sampler);

} // namespace millrace
