#pragma once

#include "tools/simulate/report.hpp"

#include <algorithm>
#include <vector>

namespace millrace::simulate::testing {

inline double capacity(const TraceOptions& load, const SimulationOptions& server) {
  return server.cost.capacity(load.prompt_tokens, load.output_tokens, server.scheduler.max_batch_size);
}

inline std::vector<Arrival> trace(const TraceOptions& load, const SimulationOptions& server = {}) {
  return make_trace(load, capacity(load, server));
}

inline Report report(const std::vector<Arrival>& trace, const SimulationOptions& server = {}) {
  return make_report(trace, simulate(trace, server), {});
}

inline Report report(const TraceOptions& load, const SimulationOptions& server = {}) { return report(trace(load, server), server); }

/// Every `period` from its own beginning on, so many equal requests of a tenant.
struct Stream {
  std::string tenant = {};
  std::chrono::microseconds begin{0}, period{1'000'000};
  int count = 1;
  int32_t prompt_tokens = 128, output_tokens = 64, priority = 0;
};

inline std::vector<Arrival> trace(const std::vector<Stream>& streams) {
  std::vector<Arrival> arrivals;
  for (const Stream& stream : streams)
    for (int i = 0; i < stream.count; ++i)
      arrivals.push_back({.time = stream.begin + i * stream.period,
                          .tenant = stream.tenant,
                          .priority = stream.priority,
                          .prompt_tokens = stream.prompt_tokens,
                          .output_tokens = stream.output_tokens});
  std::ranges::stable_sort(arrivals, {}, &Arrival::time);
  return arrivals;
}

inline const TenantReport& tenant(const Report& report, std::string_view name) {
  return *std::ranges::find(report.tenants, name, &TenantReport::name);
}

} // namespace millrace::simulate::testing
