#include "actors/dispatch.hpp"

#include "actors/exceptions.hpp"

namespace millrace {

Ledger::Time DispatchState::now() const { return self->system().clock().now(); }

// A sequence that prefill is just handing on escapes both. The sampler, told by prefill, does not know it any more, so it ends
// with its first step.
void DispatchState::cancel(const StreamId& request) {
  for (const SequenceId& id : ledger->cancel(request, now())) {
    if (!device)
      continue;
    self->send(device->decode, CancelSequence{id});
    self->send(device->prefill, CancelSequence{id});
  }
}

// What the earlier actors said last came before this: they were dead when these were spawned.
void DispatchState::serve(const LocalDeviceActors& actors) {
  if (device)
    ++restarts;
  device = actors;
  ledger->take_back();
}

void DispatchState::go_on() {
  while (device) {
    auto sequence = ledger->next();
    if (!sequence)
      break;
    self->send(device->prefill, *std::move(sequence));
  }
  PipelineStats stats = ledger->stats();
  stats.restarts = restarts;
  board->write(stats);
  for (const Event& event : events)
    sink(event);
  events.clear();
}

DispatchActor::behavior_type dispatch_actor(DispatchActor::stateful_pointer<DispatchState> self,
                                            const PipelineOptions& options, int32_t context_length, EventSink sink,
                                            std::shared_ptr<StatsBoard> board) {
  die_with_text(self, Error::internal);
  auto& state = self->state;
  state.ledger.emplace(options, context_length, [&state](const Event& event) { state.events.push_back(event); });
  state.sink = std::move(sink);
  state.board = std::move(board);
  const auto then_go_on = [self](auto&& act) {
    act(self->state, *self->state.ledger);
    self->state.go_on();
  };
  return {
      [=](Prompt& prompt) {
        then_go_on([&](auto& state, Ledger& ledger) { ledger.admit(std::move(prompt), state.now()); });
      },
      [=](LocalResumption& resumption) {
        then_go_on([&](auto& state, Ledger& ledger) { ledger.resume(std::move(resumption), state.now()); });
      },
      [=](const Rejected& rejected) { then_go_on([&](auto&, Ledger& ledger) { ledger.refuse(rejected); }); },
      [=](const Cancel& cancel) { then_go_on([&](auto& state, Ledger&) { state.cancel(cancel.request); }); },
      [=](const LocalDeviceActors& actors) { then_go_on([&](auto& state, Ledger&) { state.serve(actors); }); },
      [=](lost_atom) { then_go_on([&](auto& state, Ledger& ledger) { ledger.lose_device(state.now()); }); },
      [=](const SequenceStarted& started) {
        then_go_on([&](auto& state, Ledger& ledger) { ledger.started(started.sequence, state.now()); });
      },
      [=](const Progress& progress) { then_go_on([&](auto&, Ledger& ledger) { ledger.progress(progress); }); },
      [=](PromptLogprobs& piece) {
        then_go_on([&](auto&, Ledger& ledger) { ledger.scored(std::move(piece)); });
      },
      [=](SampledBatch& batch) {
        then_go_on([&](auto& state, Ledger& ledger) {
          for (Sampled& sampled : batch.sequences)
            ledger.sampled(std::move(sampled), state.now());
        });
      },
  };
}

} // namespace millrace
