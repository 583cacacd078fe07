#pragma once

#include "actors/backlog.hpp"
#include "actors/dispatch.hpp"
#include "actors/interfaces.hpp"
#include "actors/pipeline.hpp"
#include "actors/scheduler/step_budget.hpp"
#include "actors/tokenizer.hpp"

#include <caf/actor_system.hpp>

namespace millrace {

/// What the actors of a pipeline work with.
struct Parts {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<Device> device;
  PipelineOptions options;
  int32_t context_length = 0; // positions that any sequence may have: in the context and in the pool
  std::shared_ptr<Backlog> backlog;
  OnEncoded on_encoded = {};
  std::shared_ptr<StatsBoard> board;
  std::shared_ptr<StepBudget> budget; // of the device
  EventSink sink;
  std::function<void(std::string)> report; // what died and why, for the operator
  std::function<void()> on_end_of_dispatch;
};

/// Whether the device's actors have threads of their own. Tests that run without threads say no.
enum class Pinning { own_threads, none };

struct Graph {
  TokenizerActor tokenizer;
  DispatchActor dispatch;
  SupervisorActor supervisor;
};

Graph spawn_graph(caf::actor_system& system, const Parts& parts, Pinning pinning);

} // namespace millrace
