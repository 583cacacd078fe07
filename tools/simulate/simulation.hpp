#pragma once

// The server's policy in virtual time. Ledger, PromptQueue, RunningBatch, StepBudget and BlockManager are the server's own; what is
// made up is around them: the clock, how long a pass takes, and what is drawn from its logits.

#include "actors/scheduler/ledger.hpp"
#include "actors/scheduler/step_budget.hpp"
#include "model/block_manager.hpp"
#include "tools/simulate/cost_model.hpp"
#include "tools/simulate/trace.hpp"

#include <chrono>
#include <optional>
#include <vector>

namespace millrace::simulate {

struct SimulationOptions {
  SchedulerOptions scheduler = {};
  int32_t context_length = 4096; // positions of one sequence, as far as the pool holds them
  int32_t kv_blocks = 4096;      // of 16 positions
  bool prefix_cache = true;
  CostModel cost = {};
};

using Seconds = std::chrono::duration<double>;

/// What became of an arrival.
struct Outcome {
  enum class End : uint8_t { open, finished, refused, cancelled, expired, failed } end = End::open;
  std::optional<Seconds> queue_wait;          // until it was in a pass
  std::optional<Seconds> time_to_first_token; // both since its arrival
  std::vector<Seconds> gaps;                  // between its tokens
  int32_t tokens = 0;                         // generated
  int64_t read_tokens = 0; // of its prompt, without what the cache held; again when it was read again
  Seconds ended{0};        // since the begin of the trace
};

struct Result {
  std::vector<Outcome> outcomes; // of the arrivals, in their order
  Ledger::Totals totals;
  StepBudget::Totals steps;
  CacheCounters cache;
  Seconds duration{0}; // until the last request ended
  Seconds busy{0};     // in passes
  int64_t wasted_steps = 0; // of sequences, in passes that were planned after their request had ended
  int64_t idle_checks = 0;  // how often nothing ran, and all invariants held
};

/// Runs a trace to its end. Throws std::invalid_argument for options or a prompt that the server would refuse to take, and
/// std::logic_error where an invariant breaks: each request ends once, and when nothing runs no table is left, no block is used
/// and the book is empty.
Result simulate(const std::vector<Arrival>& trace, const SimulationOptions& options);

} // namespace millrace::simulate
