#pragma once

#include "actors/interfaces.hpp"
#include "actors/scheduler/ledger.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <mutex>

namespace millrace {

/// The latest figures of dispatch, for any thread.
class StatsBoard {
public:
  void write(const PipelineStats& stats) {
    std::lock_guard lock{mutex_};
    stats_ = stats;
  }
  PipelineStats read() const {
    std::lock_guard lock{mutex_};
    return stats_;
  }

private:
  mutable std::mutex mutex_;
  PipelineStats stats_;
};

/// Keeps the ledger, gives out what it says is next, and tells the readers.
struct DispatchState {
  static inline const char* name = "dispatch";

  explicit DispatchState(DispatchActor::stateful_pointer<DispatchState> self) : self(self) {}

  Ledger::Time now() const;
  void cancel(const StreamId& request);
  void serve(const LocalDeviceActors& actors);
  /// After each message: sends what may run now, writes the figures, and then tells the readers, who may look at them.
  void go_on();

  DispatchActor::stateful_pointer<DispatchState> self;
  std::optional<Ledger> ledger;
  std::vector<Event> events; // that the ledger has made in this handler
  EventSink sink;
  std::shared_ptr<StatsBoard> board;
  std::optional<LocalDeviceActors> device; // none yet: what is admitted waits
  int64_t restarts = 0;
};

DispatchActor::behavior_type dispatch_actor(DispatchActor::stateful_pointer<DispatchState> self,
                                            const PipelineOptions& options, int32_t context_length, EventSink sink,
                                            std::shared_ptr<StatsBoard> board);

} // namespace millrace
