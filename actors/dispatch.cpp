#include "actors/dispatch.hpp"

#include "actors/exceptions.hpp"

namespace millrace {

Ledger::Time DispatchState::now() const { return self->system().clock().now(); }

std::optional<Ledger::Time> DispatchState::deadline(const Generate& generate) const {
  using std::chrono::milliseconds;
  if (generate.expires_at)
    return now() + milliseconds(*generate.expires_at - unix_ms());
  if (generate.deadline_ms)
    return now() + milliseconds(*generate.deadline_ms);
  return std::nullopt;
}

// Each has it once: prefill, decode, or a message between them, which decode drops when it comes.
void DispatchState::forget(const std::vector<SequenceId>& sequences) {
  if (!device)
    return;
  for (const SequenceId& id : sequences) {
    const CancelSequence cancel{id, passes()};
    self->send(device->decode, cancel);
    self->send(device->prefill, cancel);
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
  const Ledger::Time now = this->now();
  forget(ledger->expire(now));
  if (const auto next = ledger->next_deadline(); next && (!alarm || *next < *alarm)) {
    alarm = next;
    self->delayed_send(self, *next - now, expire_atom_v);
  }
  while (device) {
    auto sequence = ledger->next(now);
    if (!sequence)
      break;
    self->send(device->prefill, *std::move(sequence));
  }
  if (device)
    if (const auto id = ledger->yield(now))
      self->send(device->decode, YieldSequence{*id});
  StatsBoard::Figures figures{ledger->totals()};
  figures.restarts = restarts;
  board->write(figures);
  for (const Event& event : events)
    sink(event);
  events.clear();
}

DispatchActor::behavior_type dispatch_actor(DispatchActor::stateful_pointer<DispatchState> self,
                                            const PipelineOptions& options, int32_t context_length,
                                            std::function<int64_t()> passes, EventSink sink,
                                            std::shared_ptr<StatsBoard> board) {
  die_with_text(self, Error::internal);
  auto& state = self->state;
  state.ledger.emplace(options, context_length, [&state](const Event& event) { state.events.push_back(event); });
  state.sink = std::move(sink);
  state.board = std::move(board);
  state.passes = std::move(passes);
  state.unix_ms = options.unix_ms;
  const auto then_go_on = [self](auto&& act) {
    act(self->state, *self->state.ledger);
    self->state.go_on();
  };
  return {
      [=](Prompt& prompt) {
        then_go_on([&](auto& state, Ledger& ledger) {
          const auto deadline = state.deadline(prompt.generate);
          ledger.admit(std::move(prompt), state.now(), deadline);
        });
      },
      [=](LocalResumption& resumption) {
        then_go_on([&](auto& state, Ledger& ledger) {
          const auto deadline = state.deadline(resumption.prompt.generate);
          ledger.resume(std::move(resumption), state.now(), deadline);
        });
      },
      [=](const Rejected& rejected) { then_go_on([&](auto&, Ledger& ledger) { ledger.refuse(rejected); }); },
      [=](const Cancel& cancel) { 
        then_go_on([&](auto& state, Ledger& ledger) { state.forget(ledger.cancel(cancel.request, state.now())); });
      },
      [=](const LocalDeviceActors& actors) { then_go_on([&](auto& state, Ledger&) { state.serve(actors); }); },
      [=](lost_atom) { then_go_on([&](auto& state, Ledger& ledger) { ledger.lose_device(state.now()); }); },
      [=](const SequenceStarted& started) {
        then_go_on([&](auto& state, Ledger& ledger) { ledger.started(started, state.now()); });
      },
      [=](const SequencePreempted& preempted) {
        then_go_on([&](auto&, Ledger& ledger) { ledger.preempted(preempted); });
      },
      [=](expire_atom) { then_go_on([](auto& state, Ledger&) { state.alarm.reset(); }); },
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
