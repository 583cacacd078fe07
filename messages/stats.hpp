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

/// What the scheduler has done since the start.
struct SchedulerStats {
  // Sequences that left the device before their end and wait again, or went for good.
  int64_t preempted = 0; // since no KV block was free
  int64_t yielded = 0;   // for a tenant that had none there, or for a more urgent one
  int64_t cancelled = 0, expired = 0; // requests: by their client; by their deadline

  // The prefix cache.
  int64_t cache_queries = 0, cache_hits = 0; // prompt tokens that were looked up; that were found
  int64_t cache_evictions = 0;               // blocks
  int32_t kv_blocks_cached = 0;              // not in use, kept for who has the same prefix

  // Passes by what they are for. Rows are tokens.
  int64_t prefill_passes = 0, prefill_rows = 0;
  double prefill_seconds = 0;
  int64_t decode_passes = 0, decode_rows = 0;
  double decode_seconds = 0;
  double loop_seconds = 0; // from the end of a decode step's pass until its tokens could be fed, summed

  // What the passes moved, and the measured peaks of the machine (0: not measured).
  double decode_bytes = 0, prefill_operations = 0;
  double peak_bytes_per_second = 0, peak_operations_per_second = 0;

  // Sequences whose blocks were free again n passes after their end was known; the last counts all from there on.
  std::vector<int64_t> cancel_passes;
  MILLRACE_FIELDS(preempted, yielded, cancelled, expired, cache_queries, cache_hits, cache_evictions,
                  kv_blocks_cached, prefill_passes, prefill_rows, prefill_seconds, decode_passes, decode_rows,
                  decode_seconds, loop_seconds, decode_bytes, prefill_operations, peak_bytes_per_second,
                  peak_operations_per_second, cancel_passes)
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
  SchedulerStats scheduler;

  int64_t log_streams = 0, log_bytes = 0;
  int64_t subscriptions = 0;    // topics in force
  int64_t http_connections = 0;
  int64_t replays = 0;          // events that were sent again
  int64_t lagging = 0;          // readers that were told so

  std::vector<RequestStats> requests; // the oldest first, at most as many as were asked for
  MILLRACE_FIELDS(version, model, device, uptime_seconds, state, running, waiting, queued_tokens,
                  kv_blocks_used, kv_blocks_total, prompt_tokens, generated_tokens, finished, rejected,
                  restarts, passes, device_busy_seconds, scheduler, log_streams, log_bytes, subscriptions,
                  http_connections, replays, lagging, requests)
};

} // namespace millrace
