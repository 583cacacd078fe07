#include "actors/decode.hpp"

#include "actors/exceptions.hpp"

namespace millrace {

void DecodeState::admit(LocalSequence sequence) {
  batch.admit(std::move(sequence));
  schedule_step();
}

void DecodeState::cancel(const SequenceId& id) {
  if (batch.cancel(id))
    self->send(prefill, freed_atom_v);
}

void DecodeState::schedule_step() {
  if (step_in_flight || batch.empty())
    return;
  step_in_flight = true;
  self->send(self, step_atom_v);
}

void DecodeState::step() {
  RunningBatch::Step step = batch.plan();
  if (step.rows.empty()) {
    step_in_flight = false; // all was cancelled while the step was in the mailbox
    return;
  }
  logits->resize(step.rows.size() * size_t(device->config().vocab_size));
  device->forward(step.rows, *logits);
  self->send(sampler, LocalLogits{logits, std::move(step.sequences)});
}

void DecodeState::apply(const LocalNextIds& next) {
  step_in_flight = false;
  if (batch.apply(next) > 0)
    self->send(prefill, freed_atom_v);
  schedule_step();
}

DecodeActor::behavior_type decode_actor(DecodeActor::stateful_pointer<DecodeState> self,
                                        std::shared_ptr<Device> device, SamplerActor sampler) {
  die_with_text(self, Error::device_lost);
  self->state.device = std::move(device);
  self->state.sampler = std::move(sampler);
  return {
      [=](PrefillActor& prefill) { self->state.prefill = std::move(prefill); },
      [=](LocalSequence& sequence) { self->state.admit(std::move(sequence)); },
      [=](const CancelSequence& cancel) { self->state.cancel(cancel.sequence); },
      [=](const LocalNextIds& next) { self->state.apply(next); },
      [=](step_atom) { self->state.step(); },
  };
}

} // namespace millrace
