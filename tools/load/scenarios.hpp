#pragma once

// What a server is put through. Each prints what it measured and returns whether everything came as it should.

#include "tools/load/http_client.hpp"
#include "tools/load/report.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace millrace::load {

/// A running `millrace serve`.
struct Target {
  Endpoint endpoint;
  int pid = 0; // 0: its memory and CPU time are not told
  std::string model = "";
};

struct StreamsOptions {
  int streams = 1000;
  int tokens = 32;
};
struct IdleOptions {
  int connections = 10'000;
  int streams = 16; // that run meanwhile
  int tokens = 64;
};
struct ReadersOptions {
  int readers = 200;
  int stalled = 10; // more readers, which stop reading after the first event
  int tokens = 512;
};
struct SoakOptions {
  double minutes = 30;
  int streams = 24; // at any time
  int tokens = 48;
};
struct PublishOptions {
  int subscribers = 1;
  int64_t events = 1'000'000;
  int streams = 64;
  int rounds = 3;
};

bool run_streams(const Target& target, const StreamsOptions& options);
bool run_idle(const Target& target, const IdleOptions& options);
bool run_readers(const Target& target, const ReadersOptions& options);
bool run_soak(const Target& target, const SoakOptions& options);
/// Needs no server and no model.
bool run_publish(const PublishOptions& options);

// ---- what they share ----

using Clock = std::chrono::steady_clock;
inline double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// The body of a streamed completion with draws of its own.
std::string completion_body(int tokens, uint64_t seed);

/// Whether the id is this event's own: those of other native events tell where the stream stands.
inline bool is_numbered(const SseEvent& event) {
  return !event.id.empty() && (event.name.empty() || event.name == "token" || event.name == "finished");
}

/// Follows the numbers of one stream by its SSE ids, "choice:seq" of choice 0.
class SequenceCheck {
public:
  /// Each numbered event has an id of its own, or an id may stand for those before it as well, whose text came with it.
  explicit SequenceCheck(bool each = true) : each_(each) {}
  /// False if this is not what comes next.
  bool next(const std::string& id);
  int64_t expected() const { return expected_; }

private:
  bool each_;
  int64_t expected_ = 0;
};

/// One stream as its reader saw it.
struct StreamOutcome {
  bool complete = false; // it ended as it should, and every number came in its turn
  std::string trouble;   // why not
  int status = 0;
  int64_t tokens = 0;
  double first_ms = 0;
  Samples gaps; // between two tokens, in ms
};
asio::awaitable<void> run_completion(const Target& target, int tokens, uint64_t seed, StreamOutcome& outcome);

/// Tells what a group of streams came to; true if all are complete.
bool tell(const std::string& what, const std::vector<StreamOutcome>& outcomes, double seconds);
/// The difference between two looks at the server.
void tell_usage(const Target& target, const ProcessUsage& before, const ProcessUsage& after, double seconds);

} // namespace millrace::load
