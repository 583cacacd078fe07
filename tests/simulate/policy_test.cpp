// What the scheduler promises, under loads that put it to the test. Times are virtual; margins say what a change may cost.

#include "tests/simulate/load.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace millrace::simulate::testing {
namespace {

using namespace std::chrono_literals;
using End = Outcome::End;

/// A tenant that asks every 20 s, alone or beside one that asks for twice of what the device can do.
std::vector<Arrival> light_tenant(bool beside_a_greedy_one) {
  std::vector<Stream> streams{{.tenant = "light", .begin = 30s, .period = 20'037ms, .count = 100, .prompt_tokens = 256}};
  if (beside_a_greedy_one)
    streams.push_back({.tenant = "greedy", .period = 410ms, .count = 5000});
  return trace(streams);
}

TEST(Policy, AGreedyTenantDoesNotStarveALightOne) {
  const SimulationOptions server{.scheduler = {.prefill_stretch = 4}};

  const Report alone = report(light_tenant(false), server), beside = report(light_tenant(true), server);

  const Percentiles idle = tenant(alone, "light").ttft, busy = tenant(beside, "light").ttft;
  EXPECT_EQ(tenant(beside, "light").finished, 100);
  EXPECT_LE(busy.p50, 2 * idle.p50);
  EXPECT_LE(busy.p99, 2.5 * idle.p99); // what is in flight when it comes has to end
  EXPECT_GT(beside.refused, 1000) << "the load was meant to be too much";
}

/// Each asks for half of what the device can do or more, the first 8 times as often as the last.
std::vector<Arrival> four_tenants() {
  std::vector<Stream> streams;
  for (int i = 0; i < 4; ++i)
    streams.push_back({.tenant = "tenant-" + std::to_string(i), .period = 200ms * (1 << i), .count = 8000 >> i});
  return trace(streams);
}

TEST(Policy, TenantsThatAllWantMoreAreServedAlike) {
  EXPECT_GE(report(four_tenants()).fairness, 0.95);
}

TEST(Policy, AFullQueueIsSharedAlike) {
  EXPECT_GE(report(four_tenants(), {.scheduler = {.max_queued_tokens = 8192, .max_queue_wait = 0ms}}).fairness, 0.95);
}

TEST(Policy, LongPromptsDoNotStopRunningStreams) {
  for (const double rate : {0.02, 0.2}) { // now and then; always one that is being read
    const TraceOptions load{
        .kind = TraceKind::long_among_short, .rate = rate, .duration = 200, .prompt_tokens = 64, .output_tokens = 800};

    const auto arrivals = trace(load);
    const Result result = simulate(arrivals, {});

    std::vector<Seconds> gaps;
    for (size_t stream = 0; stream < 8; ++stream)
      gaps.insert(gaps.end(), result.outcomes[stream].gaps.begin(), result.outcomes[stream].gaps.end());
    const Percentiles gap = percentiles(gaps);
    EXPECT_GT(arrivals.size(), 8u);
    EXPECT_LE(gap.p99, 3 * gap.p50) << rate;
  }
}

TEST(Policy, AShortPromptPassesLongOnes) {
  const Arrival long_one{.prompt_tokens = 1500}, short_one{.time = 500ms, .prompt_tokens = 16, .output_tokens = 8};

  const Result alone = simulate({long_one, long_one}, {}), beside = simulate({long_one, long_one, short_one}, {});

  EXPECT_LT(beside.outcomes[2].time_to_first_token.value(), 2s);
  for (const size_t i : {0, 1})
    EXPECT_LT(beside.outcomes[i].time_to_first_token.value(), 1.3 * alone.outcomes[i].time_to_first_token.value());
}

TEST(Policy, ASharedPrefixIsReadOnce) {
  const TraceOptions load{
      .kind = TraceKind::shared_prefix, .rate = 0.15, .prompt_tokens = 32, .output_tokens = 16, .prefix_tokens = 1024};

  const Report cached = report(load), read = report(load, {.prefix_cache = false});

  EXPECT_LE(3 * cached.ttft.p50, read.ttft.p50);
  EXPECT_GE(cached.cache_hit_rate, 0.9);
  EXPECT_EQ(read.cache_hit_rate, 0);
}

TEST(Policy, RequestsThatBeginAlikeAtOnceWaitForTheFirstOfThem) {
  std::vector<Arrival> arrivals(8, {.prefix_tokens = 512, .prompt_tokens = 528, .output_tokens = 4});

  const Result result = simulate(arrivals, {});

  EXPECT_LT(result.steps.prefill_rows, 2 * 528);
}

TEST(Policy, TenTimesTheLoadIsRefusedAtTheDoor) {
  const SimulationOptions server;
  const auto arrivals = trace({.kind = TraceKind::overload}, server);

  const Result result = simulate(arrivals, server);

  const Report report = make_report(arrivals, result, {});
  const double limit = double(server.scheduler.max_queue_wait.count());
  // How fast the device is has to be learnt from requests that were let in, so some wait longer.
  EXPECT_LE(report.queue_wait.p50, 1.1 * limit);
  EXPECT_LE(report.ttft.p99, 1.7 * limit);
  EXPECT_GT(report.refused, report.requests * 8 / 10);
  EXPECT_EQ(report.finished + report.refused, report.requests);
  for (size_t i = 0; i < arrivals.size(); ++i)
    if (result.outcomes[i].end == End::refused) {
      EXPECT_EQ(result.outcomes[i].ended, Seconds(arrivals[i].time)) << i;
    }
}

TEST(Policy, AgeingBringsTheLeastUrgentToTheirTurn) {
  // Urgent ones alone are more than the device can do.
  const auto arrivals = trace({{.period = 550ms, .count = 600}, {.begin = 20s, .period = 40s, .count = 5, .priority = 3}});
  SimulationOptions server{.scheduler = {.max_queued_tokens = 1 << 20, .max_queue_wait = 0ms, .ageing = 10'000ms}};

  const Result aged = simulate(arrivals, server);
  server.scheduler.ageing = 0ms;
  const Result starved = simulate(arrivals, server);

  for (size_t i = 0; i < arrivals.size(); ++i)
    if (arrivals[i].priority == 3) { // it becomes as urgent as they in three steps, then those that came later wait for it
      const Seconds next = aged.outcomes[i + 1].queue_wait.value();
      EXPECT_LE(aged.outcomes[i].queue_wait.value(), std::max(next, Seconds(30s)) + 5s) << i;
      EXPECT_GT(starved.outcomes[i].queue_wait.value(), aged.outcomes[i].queue_wait.value() + 60s) << i;
    }
}

/// Three urgent ones come while more wait than the device can do.
std::vector<Arrival> three_urgent() {
  return trace({{.period = 400ms, .count = 300, .priority = 1}, {.begin = 60s, .period = 20s, .count = 3, .priority = 0}});
}

TEST(Policy, UrgentRequestsPassThoseThatWait) {
  const auto arrivals = three_urgent();

  const Result result = simulate(arrivals, {.scheduler = {.max_queue_wait = 0ms, .ageing = 0ms}});

  for (size_t i = 0; i < arrivals.size(); ++i)
    if (arrivals[i].priority == 0) {
      EXPECT_LT(result.outcomes[i].queue_wait.value(), 2s) << i;
    }
}

TEST(Policy, UrgentRequestsAreNotRefusedForThoseThatTheyPass) {
  const auto arrivals = three_urgent();

  const Result result = simulate(arrivals, {.scheduler = {.ageing = 0ms}});

  for (size_t i = 0; i < arrivals.size(); ++i)
    if (arrivals[i].priority == 0) {
      EXPECT_EQ(result.outcomes[i].end, End::finished) << i;
    }
}

TEST(Policy, CancelledRequestsCostNoStepOnceThatIsKnown) {
  for (const uint64_t seed : {1, 2, 3}) {
    const TraceOptions load{.seed = seed, .rate = 2, .duration = 300, .tenants = 3, .cancel_fraction = 0.5};

    const Report report = testing::report(load);

    EXPECT_GT(report.cancelled, 100);
    EXPECT_EQ(report.wasted_steps, 0);
    // A pass that runs, and one of the other actor that stood in line when it ended.
    EXPECT_EQ(report.freed_after[3], 0);
  }
}

TEST(Policy, DeadlinesEndRequestsOnTimeWhereverTheyAre) {
  std::vector<Arrival> arrivals(60, {.prompt_tokens = 128, .output_tokens = 64, .deadline = 20s});

  const Result result = simulate(arrivals, {});

  int64_t in_queue = 0, in_device = 0;
  for (const Outcome& outcome : result.outcomes) {
    EXPECT_LT(outcome.ended, 20s + 1us);
    if (outcome.end == End::expired) {
      EXPECT_GT(outcome.ended, 20s - 1us);
      ++(outcome.queue_wait ? in_device : in_queue);
    }
  }
  EXPECT_GT(in_queue, 0);
  EXPECT_GT(in_device, 0);
  EXPECT_EQ(result.wasted_steps, 0);
}

TEST(Policy, DeadlinesUnderTooMuchLoadLeaveTheDeviceToThoseThatCanKeepThem) {
  const TraceOptions load{.rate = 6, .duration = 300, .deadline = 40s};
  TraceOptions patient = load;
  patient.deadline.reset();

  const Report hurried = report(load), unhurried = report(patient);

  EXPECT_GE(double(hurried.finished) / hurried.seconds, 0.5 * double(unhurried.finished) / unhurried.seconds);
}

TEST(Policy, ASmallPoolFinishesAllByGivingWay) {
  const TraceOptions load{.duration = 300, .prompt_tokens = 64, .output_tokens = 128};

  const Report report = testing::report(load, {.kv_blocks = 40, .prefix_cache = false});

  EXPECT_GT(report.preempted, 10);
  EXPECT_EQ(report.finished, report.requests);
}

// Whatever comes, each request ends once, the pool is whole and nothing is left: simulate() throws where that fails.
TEST(Policy, KeepsItsInvariantsUnderAllLoads) {
  for (const std::string& name : trace_names())
    for (const uint64_t seed : {1, 2})
      for (const int32_t kv_blocks : {24, 4096})
        for (const bool cache : {false, true}) {
          TraceOptions load{.kind = *trace_kind(name),
                            .seed = seed,
                            .duration = 100,
                            .prompt_tokens = 60,
                            .output_tokens = 40,
                            .prefix_tokens = 100,
                            .long_tokens = 300,
                            .cancel_fraction = 0.2};
          if (seed == 2)
            load.deadline = 15s;
          const SimulationOptions server{.scheduler = {.max_batch_size = 5}, .kv_blocks = kv_blocks, .prefix_cache = cache};
          SCOPED_TRACE(name + ", seed " + std::to_string(seed) + ", " + std::to_string(kv_blocks) + " blocks, cache " +
                       std::to_string(cache));
          const Report report = testing::report(load, server);
          EXPECT_EQ(report.failed, 0);
          EXPECT_EQ(report.wasted_steps, 0);
        }
}

} // namespace
} // namespace millrace::simulate::testing
