#pragma once

#include "actors/interfaces.hpp"
#include "actors/scheduler/prompt_queue.hpp"
#include "actors/scheduler/step_budget.hpp"
#include "messages/error.hpp"
#include "model/text/tokenizer.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace millrace {

/// Reads prompts chunk by chunk. Spawn it detached: a pass keeps its thread.
///
///   idle ──work──▶ step in the mailbox ──pass──▶ (prompts complete: waits for the sampler) ──▶ next step, or
///   idle
///
/// Between two passes everything in the mailbox has its turn, so a cancellation waits for at most one.
struct PrefillState {
  static inline const char* name = "prefill";

  explicit PrefillState(PrefillActor::stateful_pointer<PrefillState> self) : self(self) {}

  void schedule_step();
  void step();
  void cancel(const CancelSequence& cancel);
  void hand_on(const LocalNextIds& next);
  /// Tells the log-probs of prompts that the pass has given, and ends the sequences where they are no
  /// numbers.
  void tell_scores(std::span<const PromptQueue::Piece> pieces);
  /// Ends a sequence of which nothing is drawn (any more).
  void end(const SequenceId& id, FinishReason reason, Error error = Error::none);
  /// Moves these rows of the logits to the front: the sampler gets no others.
  void gather(std::span<const size_t> rows);
  size_t vocab_size() const { return size_t(device->config().vocab_size); }

  PrefillActor::stateful_pointer<PrefillState> self;
  std::shared_ptr<Device> device;
  std::shared_ptr<const Tokenizer> tokenizer;
  DispatchActor dispatch;
  DecodeActor decode;
  SamplerActor sampler;
  std::shared_ptr<StepBudget> budget;
  std::optional<PromptQueue> queue;
  std::shared_ptr<std::vector<float>> logits = std::make_shared<std::vector<float>>();
  bool step_in_flight = false; // in the mailbox, or its logits are with the sampler
};

PrefillActor::behavior_type prefill_actor(PrefillActor::stateful_pointer<PrefillState> self,
                                          std::shared_ptr<Device> device,
                                          std::shared_ptr<const Tokenizer> tokenizer,
                                          std::shared_ptr<StepBudget> budget,
                                          DispatchActor dispatch, DecodeActor decode, SamplerActor sampler);

} // namespace millrace
