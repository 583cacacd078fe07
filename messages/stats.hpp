#pragma once

// How a server does, told to whoever asks by Stats.

#include "messages/message.hpp"

#include <string>
#include <vector>

namespace millrace {

/// A request in flight. Whoever knows a whole stream id may read the stream, so only its beginning is told.
struct RequestStats {
  std::string stream;            // the first 8 hex digits of the stream id
  std::string phase;             // "encoding", "waiting", "prefill" or "decode": of its most advanced choice
  int32_t choices = 1;
  int32_t prompt_tokens = 0;     // 0 until it is encoded
  int32_t processed_tokens = 0;  // of the prompt
  int64_t generated_tokens = 0;  // over all choices
  double age_ms = 0;             // since it was admitted
  double tokens_per_second = 0;  // generated, since its first token
  MILLRACE_FIELDS(stream, phase, choices, prompt_tokens, processed_tokens, generated_tokens, age_ms,
                  tokens_per_second)
};

/// gateway -> client on ROUTER: the answer to Stats.
struct ServerStats {
  static constexpr std::string_view kType = "server_stats";
  std::string version, model, device; // "0.1.0", "tales", "cpu:0 avx512vnni"
  double uptime_seconds = 0;
  std::string state; // "serving", "draining", "stalled" (work, but no pass for too long) or "dead"

  int32_t running = 0, waiting = 0; // choices
  int64_t queued_tokens = 0;        // prompt tokens that wait for a device
  int32_t kv_blocks_used = 0, kv_blocks_total = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0; // since the start
  int64_t finished = 0, rejected = 0;              // requests since the start
  int64_t restarts = 0;                            // of the device's actors
  int64_t passes = 0;
  double device_busy_seconds = 0;

  int64_t log_streams = 0, log_bytes = 0;
  int64_t subscriptions = 0;    // topics in force
  int64_t http_connections = 0;
  int64_t replays = 0;          // events that were sent again
  int64_t lagging = 0;          // readers that were told so

  std::vector<RequestStats> requests; // the oldest first, at most as many as were asked for
  MILLRACE_FIELDS(version, model, device, uptime_seconds, state, running, waiting, queued_tokens,
                  kv_blocks_used, kv_blocks_total, prompt_tokens, generated_tokens, finished, rejected,
                  restarts, passes, device_busy_seconds, log_streams, log_bytes, subscriptions,
                  http_connections, replays, lagging, requests)
};

} // namespace millrace
