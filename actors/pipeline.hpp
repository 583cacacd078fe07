#pragma once

// The whole graph: spawns and wires the actors of one device. The only header of this folder that gateway,
// cli and examples need.

#include "actors/chat_support.hpp"
#include "actors/scheduler/options.hpp"
#include "messages/stats.hpp"
#include "messages/stream.hpp"
#include "messages/validate.hpp"
#include "model/device.hpp"
#include "model/text/tokenizer.hpp"

#include <chrono>
#include <functional>
#include <memory>

namespace millrace {

/// Of the system's clock.
int64_t unix_time_ms();

struct PipelineOptions : SchedulerOptions {
  std::chrono::milliseconds stall_limit{30'000}; // of work without a pass: then health() says stalled
  ChatSupport chat = {};                         // what renders Generate::messages: read_chat_support()
  /// Told when the pipeline will serve no more: its device is given up, or dispatch or the tokenizer died. On
  /// a thread of the pipeline, perhaps more than once; must not block or throw, nor end the pipeline.
  std::function<void()> on_death = {};
  /// Unix time in ms, for the deadlines of requests; a test may bend it.
  std::function<int64_t()> unix_ms = unix_time_ms;
  /// The clock of health() and requests(); a test may bend it.
  std::function<std::chrono::steady_clock::time_point()> clock = std::chrono::steady_clock::now;
};

/// Whether work is being done, as the device tells it: threads that merely live do not count.
struct PipelineHealth {
  enum class State { serving, stalled, dead } state = State::serving;
  std::chrono::milliseconds since_progress{0}; // while there is work: since the last pass or its coming
};

/// A request of an earlier process. Its readers have the emitted tokens already: events begin with the next
/// one, and its Done counts all.
struct ResumedRequest {
  struct Choice {
    std::vector<TokenId> emitted_ids;
    uint32_t next_epoch = 0; // of its events from now on
    bool finished = false;   // nothing of it is run or told
  };
  Generate generate;           // seed present
  std::vector<Choice> choices; // generate.n of them
  int32_t scored = 0;          // prompt tokens whose PromptLogprobs were told
};

struct PipelineStats {
  int32_t running = 0, waiting = 0; // choices
  int64_t queued_tokens = 0;
  int32_t kv_blocks_used = 0, kv_blocks_total = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t finished = 0, rejected = 0, restarts = 0;
  int64_t passes = 0; // of the device
  double device_busy_seconds = 0;
  SchedulerStats scheduler;
};

class Pipeline {
public:
  Pipeline(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<Device> device,
           const PipelineOptions& options, EventSink sink);
  /// Cancels what still runs (each request gets its end), then ends the actors.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const Limits& limits() const;

  /// Takes a request or refuses it at once. A taken one ends in exactly one Done or Rejected. Any thread.
  std::optional<Failure> submit(Generate request);
  /// Likewise for one that an earlier process began; the tokens are the ones that it would have had. Any
  /// thread.
  std::optional<Failure> resume(ResumedRequest request);
  /// An unknown id is ignored. Any thread.
  void cancel(const StreamId& request);
  /// Refuses new requests from now on and waits until the running ones have ended; true if they did within
  /// the time.
  bool drain(std::chrono::milliseconds grace);
  PipelineStats stats() const;
  PipelineHealth health() const;
  /// The requests in flight, oldest first, at most `limit`. Any thread.
  std::vector<RequestStats> requests(size_t limit) const;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
