#include "actors/decode.hpp"

#include "actors/exceptions.hpp"

namespace millrace {

void DecodeState::admit(LocalSequence sequence) {
  if (const auto pass = cancelled.find(sequence.id)) {
    sequence.blocks.reset();
    budget->note_freed(device->counters().passes - *pass);
    self->send(prefill, freed_atom_v);
    return;
  }
  batch->admit(std::move(sequence));
  note_size();
  schedule_step();
}

void DecodeState::cancel(const CancelSequence& cancel) {
  if (!batch->cancel(cancel.sequence)) {
    cancelled.add(cancel.sequence, cancel.pass); // prefill has it, or it is on its way here
    return;
  }
  note_size();
  budget->note_freed(device->counters().passes - cancel.pass);
  self->send(prefill, freed_atom_v);
}

void DecodeState::yield(const SequenceId& id) {
  if (!batch->yield(id))
    return;
  note_size();
  tell_preempted(id, true);
}

void DecodeState::tell_preempted(const SequenceId& id, bool yielded) {
  self->send(sampler, CancelSequence{id});
  self->send(dispatch, SequencePreempted{id, yielded});
  self->send(prefill, freed_atom_v);
}

void DecodeState::schedule_step() {
  if (step_in_flight || batch->empty())
    return;
  step_in_flight = true;
  self->send(self, step_atom_v);
}

void DecodeState::step() {
  RunningBatch::Step step = batch->plan(device->blocks());
  for (const SequenceId& id : step.preempted)
    tell_preempted(id, false);
  note_size();
  if (step.rows.empty()) {
    step_in_flight = false; // all was cancelled while the step was in the mailbox, or gave way
    return;
  }
  logits->resize(step.rows.size() * size_t(device->config().vocab_size));
  const double seconds = device->forward(step.rows, *logits);
  passed = std::chrono::steady_clock::now();
  budget->note_decode(int32_t(step.rows.size()), step.visible, seconds);
  self->send(sampler, LocalLogits{logits, std::move(step.sequences)});
}

void DecodeState::apply(const LocalNextIds& next) {
  step_in_flight = false;
  budget->note_loop(std::chrono::duration<double>(std::chrono::steady_clock::now() - passed).count());
  const RunningBatch::Applied applied = batch->apply(next, device->blocks());
  note_size();
  for (const SequenceId& id : applied.yielded)
    tell_preempted(id, true);
  if (applied.left > applied.yielded.size())
    self->send(prefill, freed_atom_v);
  schedule_step();
}

DecodeActor::behavior_type decode_actor(DecodeActor::stateful_pointer<DecodeState> self,
                                        std::shared_ptr<Device> device, std::shared_ptr<StepBudget> budget,
                                        DispatchActor dispatch, SamplerActor sampler) {
  die_with_text(self, Error::device_lost);
  auto& state = self->state;
  state.batch.emplace(device->one_path());
  state.device = std::move(device);
  state.budget = std::move(budget);
  state.dispatch = std::move(dispatch);
  state.sampler = std::move(sampler);
  state.note_size();
  return {
      [=](PrefillActor& prefill) { self->state.prefill = std::move(prefill); },
      [=](LocalSequence& sequence) { self->state.admit(std::move(sequence)); },
      [=](const CancelSequence& cancel) { self->state.cancel(cancel); },
      [=](const YieldSequence& yield) { self->state.yield(yield.sequence); },
      [=](const LocalNextIds& next) { self->state.apply(next); },
      [=](step_atom) { self->state.step(); },
  };
}

} // namespace millrace
