#pragma once

// What a simulation says to its reader.

#include "tools/simulate/simulation.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace millrace::simulate {

/// What a request must keep to count as good: 0 is no limit.
struct Slo {
  double ttft_ms = 5000; // time to its first token
  double gap_ms = 500;   // the longest gap between two of its tokens
};

/// Order statistics, in ms. The smallest sample that so many of them do not exceed; 0 without samples.
struct Percentiles {
  size_t samples = 0;
  double p50 = 0, p99 = 0, max = 0;
};
Percentiles percentiles(std::vector<Seconds> samples);

struct TenantReport {
  std::string name;
  int64_t requests = 0, finished = 0;
  int64_t service = 0; // tokens read, and twice those generated: what the scheduler's fairness counts
  Percentiles ttft;
};

struct Report {
  int64_t requests = 0, finished = 0, refused = 0, cancelled = 0, expired = 0, failed = 0;
  Percentiles ttft, gap, queue_wait;
  double goodput = 0;          // requests a second that finished within the SLO
  double output_tokens_s = 0;  // generated
  double prompt_tokens_s = 0;  // read
  double fairness = 1;         // Jain's index of the tenants' service: 1 is equal, 1/n is all to one. For tenants that all want more
  double cache_hit_rate = 0;   // of the tokens that were looked up
  int64_t preempted = 0, yielded = 0, evictions = 0;
  double seconds = 0, busy = 0; // until the last end; share of it in passes
  double rows_a_step = 0;       // of decode, in the mean
  int64_t wasted_steps = 0;
  std::vector<int64_t> freed_after; // sequences that were ended from outside, by the passes until their blocks were free
  int64_t idle_checks = 0;
  std::vector<TenantReport> tenants; // by name
};

/// Jain, Chiu, Hawe: A Quantitative Measure of Fairness (1984); 1 where nobody was served.
double jain_index(const std::vector<double>& shares);

Report make_report(const std::vector<Arrival>& trace, const Result& result, const Slo& slo);

nlohmann::ordered_json to_json(const Report& report);
nlohmann::ordered_json to_json(const CostModel& cost);
std::string to_table(const Report& report, const CostModel& cost);

} // namespace millrace::simulate
