#pragma once

#include "messages/stream.hpp"

#include <chrono>
#include <cstdint>
#include <functional>

namespace millrace {

/// Called with each event of each request, in order for a request. Must not block or throw.
using EventSink = std::function<void(const Event&)>;

/// What the policy can be told. Every limit is at least 1 where it is a count.
struct SchedulerOptions {
  int32_t max_batch_size = 16;       // sequences on the device, those that decode and those whose prompt is read
  int32_t prefill_chunk = 128;       // prompt tokens in one pass, at most
  double prefill_stretch = 1.5;      // a prefill pass beside running streams takes at most so many of their steps
  int64_t max_queued_tokens = 65536; // of prompts that wait for a device; what is more is refused as busy
  int32_t max_queued_requests = 1024;
  double max_tenant_share = 0.75;    // of either bound, for a named tenant: the rest is for the others
  std::chrono::milliseconds max_queue_wait{60'000}; // a request that would wait longer is refused as busy; 0: none is
  std::chrono::milliseconds ageing{10'000}; // after so much waiting a request is one level of priority more urgent
};

} // namespace millrace
