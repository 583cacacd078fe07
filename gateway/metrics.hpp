#pragma once

// What Prometheus reads: vLLM's names where the meaning is the same, millrace: for the rest. docs/operations.md
// lists them all.

#include "messages/stats.hpp"
#include "messages/stream.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace millrace {

/// What a stream's latencies are measured from; the streams keep one for each request.
struct StreamTimes {
  std::chrono::steady_clock::time_point opened{};
  std::chrono::steady_clock::time_point first_token{};
  std::chrono::steady_clock::time_point last_token{};
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;
};

/// Thread-safe and cheap: it stands on the path of every token.
class Metrics {
public:
  explicit Metrics(std::string model_name);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void opened(StreamTimes& times);
  void refused(std::string_view error); // before it was admitted
  void event(const Event& event, StreamTimes& times);
  /// One HTTP answer: route as the table of routes spells it, never the client's text.
  void http(std::string_view route, int status, double seconds);
  void http_connections(int64_t open);
  void first_byte(double seconds); // of an HTTP stream

  /// The text format, version 0.0.4, with gauges set from `stats`.
  std::string scrape(const ServerStats& stats);

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
