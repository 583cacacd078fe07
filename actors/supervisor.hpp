#pragma once

#include "actors/interfaces.hpp"
#include "actors/restart_budget.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <vector>

namespace millrace {

/// What a supervisor needs to know of the actors it watches.
struct Charges {
  std::string device_name;
  TokenizerActor tokenizer;
  DispatchActor dispatch;
  std::function<LocalDeviceActors()> spawn_device;
  std::function<void(std::string)> report;      // what died and why, for the operator
  std::function<void()> on_end_of_dispatch;     // it died without being told to: nobody speaks to the readers any more
  std::function<void()> on_death = {};          // as in PipelineOptions
};

/// Restarts the actors of a device when one of them dies: first the others are ended, and once all are dead and have let go of
/// their blocks, new ones are spawned and dispatch is told. Up to three times a minute; then the device is given up.
///
///   watching ──a device actor dies──▶ ending the others ──all dead──▶ watching, or given up
///       └──tokenizer or dispatch dies──▶ ends all
struct SupervisorState {
  static inline const char* name = "supervisor";

  explicit SupervisorState(SupervisorActor::stateful_pointer<SupervisorState> self) : self(self) {}

  void start_device();
  void give_up(const std::string& why);
  void on_down(const caf::down_msg& down);
  void on_device_actor_down(const caf::down_msg& down);
  void end_device();
  void end_all();
  void tell_death() const;

  SupervisorActor::stateful_pointer<SupervisorState> self;
  Charges charges;
  RestartBudget budget{3, std::chrono::seconds(60)};
  std::vector<caf::actor> device; // those that live
  bool ending_device = false;
};

SupervisorActor::behavior_type supervisor_actor(SupervisorActor::stateful_pointer<SupervisorState> self,
                                                Charges charges);

} // namespace millrace
