#include "tools/simulate/trace.hpp"

#include <algorithm>
#include <cmath>

namespace millrace::simulate {
namespace {

using std::chrono::microseconds;

constexpr double kBurstSeconds = 20;
constexpr double kPatienceSeconds = 10;
constexpr int kLightOneIn = 25;
constexpr int kPatientOneIn = 20;
constexpr int32_t kPatientPriority = 3;

uint64_t mix(uint64_t x) { // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Of the stream's text: prefix, prompt and output of all requests are different streams.
TokenId token(uint64_t stream, uint64_t position) { return TokenId(mix(mix(stream) + position) % uint64_t{kVocabSize}); }

double default_rate(TraceKind kind, double capacity) {
  switch (kind) {
  case TraceKind::greedy_tenant: return 2 * capacity;
  case TraceKind::overload: return 10 * capacity;
  case TraceKind::long_among_short: return 0.05;
  default: return capacity / 2;
  }
}

/// Makes one arrival after the other.
class Maker {
public:
  Maker(const TraceOptions& options, double capacity)
      : options_(options), rate_(options.rate > 0 ? options.rate : default_rate(options.kind, capacity)), random_(options.seed) {}

  std::vector<Arrival> make() {
    if (options_.kind == TraceKind::long_among_short)
      for (int32_t i = 0; i < options_.streams; ++i)
        add(0, options_.prompt_tokens, options_.output_tokens);
    for (double time = random_.exponential(1 / rate_); time < options_.duration; time += random_.exponential(1 / rate_))
      add_next(time);
    return std::move(arrivals_);
  }

private:
  void add_next(double time) {
    switch (options_.kind) {
    case TraceKind::bursts: time = std::floor(time / kBurstSeconds) * kBurstSeconds; break;
    case TraceKind::long_among_short: add(time, options_.long_tokens, options_.output_tokens); return;
    default: break;
    }
    Arrival& arrival = add(time, around(options_.prompt_tokens), around(options_.output_tokens));
    if (options_.kind == TraceKind::greedy_tenant)
      arrival.tenant = random_.integer(1, kLightOneIn) == 1 ? "light" : "greedy";
    if (options_.kind == TraceKind::priorities && random_.integer(1, kPatientOneIn) == 1)
      arrival.priority = kPatientPriority;
    if (options_.kind == TraceKind::shared_prefix) {
      arrival.prefix_tokens = options_.prefix_tokens;
      arrival.prompt_tokens += options_.prefix_tokens;
    }
  }

  Arrival& add(double seconds, int32_t prompt_tokens, int32_t output_tokens) {
    Arrival& arrival = arrivals_.emplace_back();
    arrival.time = to_microseconds(seconds);
    arrival.prompt_tokens = prompt_tokens;
    arrival.output_tokens = output_tokens;
    arrival.deadline = options_.deadline;
    if (options_.tenants > 1)
      arrival.tenant = "tenant-" + std::to_string(random_.integer(1, options_.tenants));
    if (options_.cancel_fraction > 0 && random_.uniform() < options_.cancel_fraction)
      arrival.cancel = to_microseconds(random_.uniform() * kPatienceSeconds);
    return arrival;
  }

  int32_t around(int32_t mean) { return int32_t(random_.integer(std::max((mean + 1) / 2, 1), mean + mean / 2)); }
  static microseconds to_microseconds(double seconds) { return microseconds(std::llround(seconds * 1e6)); }

  const TraceOptions& options_;
  double rate_;
  Random random_;
  std::vector<Arrival> arrivals_;
};

} // namespace

double Random::exponential(double mean) { return -mean * std::log(1 - uniform()); }

const std::vector<std::string>& trace_names() {
  static const std::vector<std::string> names{"poisson",          "bursts",   "shared-prefix", "greedy-tenant",
                                              "long-among-short", "overload", "priorities"};
  return names;
}

std::optional<TraceKind> trace_kind(std::string_view name) {
  const auto found = std::ranges::find(trace_names(), name);
  if (found == trace_names().end())
    return std::nullopt;
  return TraceKind(found - trace_names().begin());
}

std::string_view to_string(TraceKind kind) { return trace_names()[size_t(kind)]; }

std::vector<Arrival> make_trace(const TraceOptions& options, double capacity) { return Maker(options, capacity).make(); }

std::vector<TokenId> prompt_ids(const Arrival& arrival, uint64_t number) {
  std::vector<TokenId> ids;
  ids.reserve(size_t(arrival.prompt_tokens));
  for (int32_t position = 0; position < arrival.prompt_tokens; ++position)
    ids.push_back(token(position < arrival.prefix_tokens ? 0 : 2 * number + 1, uint64_t(position)));
  return ids;
}

TokenId output_id(uint64_t number, int64_t index) { return token(2 * number + 2, uint64_t(index)); }

} // namespace millrace::simulate
