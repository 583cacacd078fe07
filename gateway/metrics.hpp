#pragma once

// What Prometheus reads: vLLM's names where the meaning is the same, millrace: for the rest.
// docs/operations.md lists them all.

#include "messages/stats.hpp"
#include "messages/stream.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct StreamsStats; // gateway/streams.hpp

/// What a stream's latencies are measured from; the streams keep one for each request.
struct StreamTimes {
  std::chrono::steady_clock::time_point opened{};
  std::chrono::steady_clock::time_point first_token{};
  std::vector<std::chrono::steady_clock::time_point> last_tokens{}; // of each choice
  int32_t prompt_tokens = 0;                                        // 0 until it is known
  int32_t max_tokens = 0;                                           // of the request; 0: it named none
  bool resumed = false; // an earlier process opened it: its latencies from there on are nobody's
};

/// Thread-safe and cheap: it stands on the path of every token.
class Metrics {
public:
  explicit Metrics(std::string_view model_name);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Sets times.opened. times.max_tokens is the caller's to set before.
  void opened(StreamTimes& times);
  void refused(std::string_view error); // before it was admitted
  /// An event that its stream took, once each. `times` must not be used by two threads at once.
  void event(const Event& event, StreamTimes& times);
  /// One HTTP answer: route as the table of routes spells it, never the client's text.
  void http(std::string_view route, int status, double seconds);
  void first_byte(double seconds); // of an HTTP stream

  /// The text format, version 0.0.4, with gauges set from `stats` and counters raised to what it tells.
  std::string scrape(const ServerStats& stats, const StreamsStats& streams);
  std::string scrape(const ServerStats& stats);

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
