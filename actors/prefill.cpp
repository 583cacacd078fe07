#include "actors/prefill.hpp"

#include "actors/exceptions.hpp"
#include "actors/prompt_scorer.hpp"

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
  const PromptQueue::Pass pass = queue->plan(device->blocks(), budget->prefill_rows());
  for (const PromptQueue::Start& start : pass.started) {
    self->send(dispatch, SequenceStarted{start.sequence->id, start.cached});
    if (start.sequence->max_tokens > 0)
      self->send(sampler, *start.sequence);
    if (start.copy)
      device->copy(*start.copy);
  }
  if (pass.rows.empty())
    return; // all was cancelled, or nothing is free: whoever frees blocks says so

  logits->resize(pass.wanted * vocab_size());
  const double seconds = device->forward(pass.rows, *logits);
  budget->note_prefill(int32_t(pass.rows.size()), int32_t(pass.wanted), seconds);

  tell_scores(pass.pieces);
  PromptQueue::Read read = queue->advance();
  for (Progress& progress : read.progress)
    self->send(dispatch, std::move(progress));
  for (const SequenceId& id : read.ended)
    end(id, FinishReason::length);
  if (read.complete.empty())
    return schedule_step();
  step_in_flight = true;
  gather(read.logits_rows);
  self->send(sampler, LocalLogits{logits, std::move(read.complete)});
}

void PrefillState::tell_scores(std::span<const PromptQueue::Piece> pieces) {
  std::vector<SequenceId> failed; // the queue must not change while pieces point into it
  for (const PromptQueue::Piece& piece : pieces) {
    const auto rows = std::span<const float>(*logits).subspan(piece.logits_row * vocab_size());
    if (auto scored = score(piece, rows, vocab_size(), *tokenizer))
      self->send(dispatch, *std::move(scored));
    else
      failed.push_back(piece.sequence->id);
  }
  for (const SequenceId& id : failed) {
    queue->cancel(id);
    self->send(sampler, CancelSequence{id});
    end(id, FinishReason::error, Error::non_finite_logits);
  }
}

void PrefillState::end(const SequenceId& id, FinishReason reason, Error error) {
  Sampled end;
  end.sequence = id;
  end.reason = to_string(reason);
  if (error != Error::none)
    end.error = to_string(error);
  self->send(dispatch, SampledBatch{{std::move(end)}});
}

// A row never moves up, so none is written over before it has moved.
void PrefillState::gather(std::span<const size_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] != i)
      std::copy_n(logits->begin() + ptrdiff_t(rows[i] * vocab_size()), vocab_size(),
                  logits->begin() + ptrdiff_t(i * vocab_size()));
}

void PrefillState::cancel(const CancelSequence& cancel) {
  if (queue->cancel(cancel.sequence))
    budget->note_freed(device->counters().passes - cancel.pass);
  self->send(sampler, cancel);
  schedule_step();
}

void PrefillState::hand_on(const LocalNextIds& next) {
  step_in_flight = false;
  for (LocalSequence& sequence : queue->hand_on(next, device->blocks()))
    self->send(decode, std::move(sequence));
  schedule_step();
}

PrefillActor::behavior_type prefill_actor(PrefillActor::stateful_pointer<PrefillState> self,
                                          std::shared_ptr<Device> device,
                                          std::shared_ptr<const Tokenizer> tokenizer,
                                          std::shared_ptr<StepBudget> budget,
                                          DispatchActor dispatch, DecodeActor decode, SamplerActor sampler) {
  die_with_text(self, Error::device_lost);
  auto& state = self->state;
  state.device = std::move(device);
  state.tokenizer = std::move(tokenizer);
  state.dispatch = std::move(dispatch);
  state.decode = std::move(decode);
  state.sampler = std::move(sampler);
  state.budget = std::move(budget);
  state.queue.emplace(scored_rows_of_a_pass(state.device->config().vocab_size), state.device->one_path());
  return {
      [=](Sequence& sequence) {
        self->state.queue->push(std::move(sequence));
        self->state.schedule_step();
      },
      [=](const CancelSequence& cancel) { self->state.cancel(cancel); },
      [=](freed_atom) { self->state.schedule_step(); },
      [=](const LocalNextIds& next) { self->state.hand_on(next); },
      [=](step_atom) { self->state.step(); },
  };
}

} // namespace millrace
