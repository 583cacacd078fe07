#include "tools/simulate/report.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <map>

namespace millrace::simulate {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kOutputWeight = 2; // of the scheduler, and of the paper that it names

/// A quotient, or 0 where nothing is to be shared.
double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

bool is_good(const Outcome& outcome, const Slo& slo) {
  const auto keeps = [](Seconds time, double limit_ms) { return limit_ms == 0 || time.count() * 1e3 <= limit_ms; };
  return outcome.end == Outcome::End::finished && keeps(*outcome.time_to_first_token, slo.ttft_ms) &&
         std::ranges::all_of(outcome.gaps, [&](Seconds gap) { return keeps(gap, slo.gap_ms); });
}

void count(Report& report, Outcome::End end) {
  switch (end) {
  case Outcome::End::open: break;
  case Outcome::End::finished: ++report.finished; break;
  case Outcome::End::refused: ++report.refused; break;
  case Outcome::End::cancelled: ++report.cancelled; break;
  case Outcome::End::expired: ++report.expired; break;
  case Outcome::End::failed: ++report.failed; break;
  }
}

Json to_json(const Percentiles& ms) {
  return {{"samples", ms.samples}, {"p50_ms", ms.p50}, {"p99_ms", ms.p99}, {"max_ms", ms.max}};
}

Json to_json(const PassCost& cost) {
  return {{"fixed_ms", cost.fixed * 1e3}, {"row_ms", cost.row * 1e3}, {"position_us", cost.position * 1e6}};
}

[[gnu::format(printf, 2, 3)]] void add_line(std::string& table, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  table += line;
  table += '\n';
}

void add_line(std::string& table, const char* name, const Percentiles& ms) {
  add_line(table, "%-22s %10.1f %10.1f %10.1f ms   (%zu)", name, ms.p50, ms.p99, ms.max, ms.samples);
}

void add_line(std::string& table, const char* name, const PassCost& cost) {
  add_line(table, "%-10s %8.2f ms + %.3f ms a row + %.3f us a position seen", name, cost.fixed * 1e3, cost.row * 1e3,
           cost.position * 1e6);
}

} // namespace

Percentiles percentiles(std::vector<Seconds> samples) {
  if (samples.empty())
    return {};
  std::ranges::sort(samples);
  const auto at = [&](size_t percent) {
    const size_t rank = (samples.size() * percent + 99) / 100;
    return samples[std::max<size_t>(rank, 1) - 1].count() * 1e3;
  };
  return {.samples = samples.size(), .p50 = at(50), .p99 = at(99), .max = at(100)};
}

double jain_index(const std::vector<double>& shares) {
  double sum = 0, squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return squares > 0 ? sum * sum / (double(shares.size()) * squares) : 1;
}

Report make_report(const std::vector<Arrival>& trace, const Result& result, const Slo& slo) {
  struct Tenant {
    TenantReport report;
    std::vector<Seconds> ttft;
  };
  Report report;
  std::map<std::string, Tenant> tenants;
  std::vector<Seconds> ttft, gaps, queue_wait;
  int64_t good = 0, generated = 0, read = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    const Outcome& outcome = result.outcomes[i];
    Tenant& tenant = tenants[trace[i].tenant];
    count(report, outcome.end);
    good += is_good(outcome, slo);
    generated += outcome.tokens;
    read += outcome.read_tokens;
    ++tenant.report.requests;
    tenant.report.finished += outcome.end == Outcome::End::finished;
    tenant.report.service += outcome.read_tokens + kOutputWeight * outcome.tokens;
    if (outcome.time_to_first_token) {
      ttft.push_back(*outcome.time_to_first_token);
      tenant.ttft.push_back(*outcome.time_to_first_token);
    }
    if (outcome.queue_wait)
      queue_wait.push_back(*outcome.queue_wait);
    gaps.insert(gaps.end(), outcome.gaps.begin(), outcome.gaps.end());
  }

  std::vector<double> shares;
  for (auto& [name, tenant] : tenants) {
    tenant.report.name = name;
    tenant.report.ttft = percentiles(std::move(tenant.ttft));
    shares.push_back(double(tenant.report.service));
    report.tenants.push_back(std::move(tenant.report));
  }
  const double seconds = result.duration.count();
  report.requests = int64_t(trace.size());
  report.ttft = percentiles(std::move(ttft));
  report.gap = percentiles(std::move(gaps));
  report.queue_wait = percentiles(std::move(queue_wait));
  report.goodput = ratio(double(good), seconds);
  report.output_tokens_s = ratio(double(generated), seconds);
  report.prompt_tokens_s = ratio(double(read), seconds);
  report.fairness = jain_index(shares);
  report.cache_hit_rate = ratio(double(result.cache.hits), double(result.cache.queries));
  report.preempted = result.totals.preempted;
  report.yielded = result.totals.yielded;
  report.evictions = result.cache.evictions;
  report.seconds = seconds;
  report.busy = ratio(result.busy.count(), seconds);
  report.rows_a_step = ratio(double(result.steps.decode_rows), double(result.steps.decode_passes));
  report.wasted_steps = result.wasted_steps;
  report.freed_after.assign(result.steps.freed_after.begin(), result.steps.freed_after.end());
  report.idle_checks = result.idle_checks;
  return report;
}

Json to_json(const Report& report) {
  Json tenants = Json::array();
  for (const TenantReport& tenant : report.tenants)
    tenants.push_back({{"name", tenant.name},
                       {"requests", tenant.requests},
                       {"finished", tenant.finished},
                       {"service", tenant.service},
                       {"ttft", to_json(tenant.ttft)}});
  return {{"requests", report.requests},
          {"finished", report.finished},
          {"refused", report.refused},
          {"cancelled", report.cancelled},
          {"expired", report.expired},
          {"failed", report.failed},
          {"ttft", to_json(report.ttft)},
          {"gap", to_json(report.gap)},
          {"queue_wait", to_json(report.queue_wait)},
          {"goodput", report.goodput},
          {"output_tokens_s", report.output_tokens_s},
          {"prompt_tokens_s", report.prompt_tokens_s},
          {"fairness", report.fairness},
          {"cache_hit_rate", report.cache_hit_rate},
          {"preempted", report.preempted},
          {"yielded", report.yielded},
          {"evictions", report.evictions},
          {"seconds", report.seconds},
          {"busy", report.busy},
          {"rows_a_step", report.rows_a_step},
          {"wasted_steps", report.wasted_steps},
          {"freed_after_passes", report.freed_after},
          {"idle_checks", report.idle_checks},
          {"tenants", std::move(tenants)}};
}

Json to_json(const CostModel& cost) {
  return {{"source", cost.source},
          {"prefill", to_json(cost.prefill)},
          {"decode", to_json(cost.decode)},
          {"loop_us", cost.loop * 1e6}};
}

std::string to_table(const Report& report, const CostModel& cost) {
  std::string table;
  add_line(table, "cost of a pass, %s", cost.source.c_str());
  add_line(table, "prefill", cost.prefill);
  add_line(table, "decode", cost.decode);
  add_line(table, "loop       %8.2f ms from a pass to its tokens", cost.loop * 1e3);
  add_line(table, "\n%-22s %10s %10s %10s", "", "p50", "p99", "max");
  add_line(table, "time to first token", report.ttft);
  add_line(table, "gap between tokens", report.gap);
  add_line(table, "wait in the queue", report.queue_wait);
  add_line(table, "\nrequests   %lld: %lld finished, %lld refused, %lld expired, %lld cancelled, %lld failed",
           (long long)report.requests, (long long)report.finished, (long long)report.refused, (long long)report.expired,
           (long long)report.cancelled, (long long)report.failed);
  add_line(table, "goodput    %.3f requests/s within the SLO", report.goodput);
  add_line(table, "tokens     %.1f/s generated, %.1f/s read; %.1f rows a step", report.output_tokens_s, report.prompt_tokens_s,
           report.rows_a_step);
  add_line(table, "device     busy %.0f %% of %.1f s", 100 * report.busy, report.seconds);
  add_line(table, "cache      %.1f %% of looked up tokens hit, %lld blocks evicted", 100 * report.cache_hit_rate,
           (long long)report.evictions);
  add_line(table, "gave way   %lld for lack of blocks, %lld for others", (long long)report.preempted, (long long)report.yielded);
  add_line(table, "fairness   %.3f (Jain's index over %zu tenants)", report.fairness, report.tenants.size());
  for (const TenantReport& tenant : report.tenants)
    if (report.tenants.size() > 1)
      add_line(table, "  %-16s %lld of %lld finished, service %lld, first token p50 %.1f, p99 %.1f ms",
               tenant.name.empty() ? "(none)" : tenant.name.c_str(), (long long)tenant.finished, (long long)tenant.requests,
               (long long)tenant.service, tenant.ttft.p50, tenant.ttft.p99);
  add_line(table, "invariants held at the end and in %lld idle moments before it", (long long)report.idle_checks - 1);
  return table;
}

} // namespace millrace::simulate
