#pragma once

#include "actors/interfaces.hpp"
#include "actors/pipeline.hpp"
#include "actors/scheduler/ledger.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <mutex>

namespace millrace {

/// The latest figures of dispatch, for any thread.
class StatsBoard {
public:
  struct Figures : Ledger::Totals {
    int64_t restarts = 0; // of the device's actors
  };
  void write(const Figures& figures) {
    std::lock_guard lock{mutex_};
    figures_ = figures;
  }
  Figures read() const {
    std::lock_guard lock{mutex_};
    return figures_;
  }

private:
  mutable std::mutex mutex_;
  Figures figures_;
};

/// Keeps the ledger, gives out what it says is next, and tells the readers.
struct DispatchState {
  static inline const char* name = "dispatch";

  explicit DispatchState(DispatchActor::stateful_pointer<DispatchState> self) : self(self) {}

  Ledger::Time now() const;
  /// The moment of a request's deadline, if it has one.
  std::optional<Ledger::Time> deadline(const Generate& generate) const;
  /// Tells the device that nobody wants these any more.
  void forget(const std::vector<SequenceId>& sequences);
  void serve(const LocalDeviceActors& actors);
  /// After each message: ends what is too late, sends what may run now, writes the figures, and then tells the readers, who may look at them.
  void go_on();

  DispatchActor::stateful_pointer<DispatchState> self;
  std::optional<Ledger> ledger;
  std::vector<Event> events; // that the ledger has made in this handler
  EventSink sink;
  std::shared_ptr<StatsBoard> board;
  std::function<int64_t()> passes; // of the device
  std::function<int64_t()> unix_ms;
  std::optional<LocalDeviceActors> device; // none yet: what is admitted waits
  std::optional<Ledger::Time> alarm;       // when the next expire_atom comes
  int64_t restarts = 0;
};

DispatchActor::behavior_type dispatch_actor(DispatchActor::stateful_pointer<DispatchState> self,
                                            const PipelineOptions& options, int32_t context_length,
                                            std::function<int64_t()> passes, EventSink sink,
                                            std::shared_ptr<StatsBoard> board);

} // namespace millrace
