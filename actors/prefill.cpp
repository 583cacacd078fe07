#include "actors/prefill.hpp"

#include "actors/exceptions.hpp"

#include <algorithm>

namespace millrace {

void PrefillState::schedule_step() {
  if (step_in_flight || queue->idle())
    return;
  step_in_flight = true;
  self->send(self, step_atom_v);
}

void PrefillState::step() {
  step_in_flight = false;
  const PromptQueue::Pass pass = queue->plan(device->blocks());
  if (pass.rows.empty())
    return; // all was cancelled, or nothing is free: whoever frees blocks says so
  for (const Sequence* sequence : pass.started) {
    self->send(dispatch, SequenceStarted{sequence->id});
    self->send(sampler, *sequence);
  }

  const auto wanted = size_t(std::ranges::count_if(pass.rows, &Row::wants_logits));
  logits->resize(wanted * size_t(device->config().vocab_size));
  device->forward(pass.rows, *logits);

  PromptQueue::Read read = queue->advance();
  for (Progress& progress : read.progress)
    self->send(dispatch, std::move(progress));
  if (read.complete.empty())
    return schedule_step();
  step_in_flight = true;
  self->send(sampler, LocalLogits{logits, std::move(read.complete)});
}

void PrefillState::hand_on(const LocalNextIds& next) {
  step_in_flight = false;
  for (LocalSequence& sequence : queue->hand_on(next))
    self->send(decode, std::move(sequence));
  schedule_step();
}

PrefillActor::behavior_type prefill_actor(PrefillActor::stateful_pointer<PrefillState> self,
                                          std::shared_ptr<Device> device, int32_t chunk, DispatchActor dispatch,
                                          DecodeActor decode, SamplerActor sampler) {
  die_with_text(self, Error::device_lost);
  auto& state = self->state;
  state.device = std::move(device);
  state.dispatch = std::move(dispatch);
  state.decode = std::move(decode);
  state.sampler = std::move(sampler);
  state.queue.emplace(chunk);
  return {
      [=](Sequence& sequence) {
        self->state.queue->push(std::move(sequence));
        self->state.schedule_step();
      },
      [=](const CancelSequence& cancel) {
        self->state.queue->cancel(cancel.sequence);
        self->send(self->state.sampler, cancel);
        self->state.schedule_step();
      },
      [=](freed_atom) { self->state.schedule_step(); },
      [=](const LocalNextIds& next) { self->state.hand_on(next); },
      [=](step_atom) { self->state.step(); },
  };
}

} // namespace millrace
