#pragma once

// Who asks for what, and when: made up from a seed, the same on every machine.

#include "messages/sequence.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::simulate {

/// One request that comes.
struct Arrival {
  std::chrono::microseconds time{0}; // since the begin
  std::string tenant = {};
  int32_t priority = 0;
  int32_t prefix_tokens = 0; // at the front of the prompt, equal in all requests
  int32_t prompt_tokens = 1; // all of them
  int32_t output_tokens = 1;
  std::optional<std::chrono::milliseconds> deadline = {}; // after its arrival
  std::optional<std::chrono::microseconds> cancel = {};   // its client leaves so long after its arrival
};

/// Draws of std::mt19937_64. The distributions are our own: those of std differ between libraries.
class Random {
public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double uniform() { return double(engine_() >> 11) * 0x1p-53; } // 0 … 1, without 1
  int64_t integer(int64_t from, int64_t to) { return from + int64_t(uniform() * double(to - from + 1)); }
  double exponential(double mean);

private:
  std::mt19937_64 engine_;
};

enum class TraceKind : uint8_t {
  poisson,          // independent requests
  bursts,           // all requests of 20 s come at once
  shared_prefix,    // prompts begin alike
  greedy_tenant,    // "greedy" sends all, but for one in 25 of "light"
  long_among_short, // streams that run from the begin on, and long prompts that come meanwhile
  overload,         // as poisson, but many times what the device can serve
  priorities,       // urgent requests, and one in 20 that is not
};
/// By their names on the command line: "shared-prefix".
std::optional<TraceKind> trace_kind(std::string_view name);
std::string_view to_string(TraceKind);
const std::vector<std::string>& trace_names();

struct TraceOptions {
  TraceKind kind = TraceKind::poisson;
  uint64_t seed = 1;
  double rate = 0;      // requests a second; 0: twice the capacity for greedy_tenant, 10 times for overload, half of it for others
  double duration = 600; // seconds in which requests come
  int32_t tenants = 1;
  int32_t prompt_tokens = 128; // mean; without the prefix
  int32_t output_tokens = 64;  // mean
  int32_t prefix_tokens = 512; // of shared_prefix
  int32_t long_tokens = 2000;  // prompt of a long one
  int32_t streams = 8;         // short ones that run beside long ones
  double cancel_fraction = 0;  // of requests whose client leaves, within 10 s
  std::optional<std::chrono::milliseconds> deadline = {};
};

/// The requests in the order of their arrival. capacity: requests a second that the device can serve at most.
/// Lengths are uniform within a half of their means.
std::vector<Arrival> make_trace(const TraceOptions& options, double capacity);

/// The prompt of the arrival with this number, and what is generated after it. Ids are below kVocabSize.
inline constexpr TokenId kVocabSize = 1 << 15;
std::vector<TokenId> prompt_ids(const Arrival& arrival, uint64_t number);
TokenId output_id(uint64_t number, int64_t index);

} // namespace millrace::simulate
