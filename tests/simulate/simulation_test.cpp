// That the simulation itself tells the truth.

#include "tests/simulate/load.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <stdexcept>

namespace millrace::simulate::testing {
namespace {

using namespace std::chrono_literals;

const CostModel kPlainCost{.prefill = {.fixed = 0.01, .row = 0.001, .position = 0},
                           .decode = {.fixed = 0.02, .row = 0.002, .position = 0},
                           .loop = 0};

TEST(Simulation, ARequestAloneTakesItsPassesOneAfterTheOther) {
  const Result result = simulate({{.time = 5s, .prompt_tokens = 200, .output_tokens = 4}}, {.cost = kPlainCost});

  const Outcome& outcome = result.outcomes[0];
  EXPECT_EQ(outcome.end, Outcome::End::finished);
  EXPECT_NEAR(outcome.time_to_first_token.value().count(), 0.01 + 0.128 + 0.01 + 0.072, 1e-6);
  ASSERT_EQ(outcome.gaps.size(), 3u);
  for (const Seconds gap : outcome.gaps)
    EXPECT_NEAR(gap.count(), 0.022, 1e-6);
  EXPECT_EQ(outcome.read_tokens, 200);
  EXPECT_EQ(result.steps.decode_passes, 3);
  EXPECT_NEAR(result.busy.count(), 0.22 + 3 * 0.022, 1e-6);
}

TEST(Simulation, PassesOfPromptsAndStepsAlternate) {
  // The stretch allows (2 · 22 ms - 10 ms) / 1 ms = 34 rows once that is learnt; a gap then has one step and one such pass.
  const Result result = simulate(
      {{.prompt_tokens = 16, .output_tokens = 200}, {.time = 1s, .prompt_tokens = 1000, .output_tokens = 1}},
      {.scheduler = {.prefill_stretch = 2}, .cost = kPlainCost});

  const Percentiles gap = percentiles(result.outcomes[0].gaps);
  EXPECT_NEAR(gap.p50, 22, 0.01);
  EXPECT_NEAR(gap.max, 22 + 44, 3);
}

TEST(Simulation, TheLoopCostsItsTimeBetweenPassAndTokens) {
  CostModel cost = kPlainCost;
  cost.loop = 0.005;

  const Result result = simulate({{.prompt_tokens = 16, .output_tokens = 3}}, {.cost = cost});

  EXPECT_NEAR(result.outcomes[0].gaps[0].count(), 0.027, 1e-6);
  EXPECT_NEAR(result.steps.loop_seconds, 0.01, 1e-6);
}

TEST(Simulation, CancelsAtTheTimeThatTheTraceSays) {
  const Result result = simulate({{.time = 1s, .prompt_tokens = 16, .output_tokens = 1000, .cancel = 2s},
                                  {.time = 1s, .prompt_tokens = 16, .output_tokens = 1, .cancel = 2s}},
                                 {.cost = kPlainCost});

  EXPECT_EQ(result.outcomes[0].end, Outcome::End::cancelled);
  EXPECT_EQ(result.outcomes[0].ended, Seconds(3s));
  EXPECT_EQ(result.outcomes[1].end, Outcome::End::finished);
}

TEST(Simulation, RefusesWhatTheContextCannotHold) {
  EXPECT_THROW(simulate({{.prompt_tokens = 4000, .output_tokens = 97}}, {}), std::invalid_argument);
  EXPECT_THROW(simulate({{.prompt_tokens = 30, .output_tokens = 3}}, {.kv_blocks = 2}), std::invalid_argument);
  EXPECT_NO_THROW(simulate({{.prompt_tokens = 4000, .output_tokens = 96}}, {}));
}

TEST(Simulation, IsCheckedWheneverNothingRuns) {
  const Result result = simulate(trace({{.period = 10s, .count = 5, .prompt_tokens = 16, .output_tokens = 2}}), {});

  EXPECT_GE(result.idle_checks, 6); // after each request, and at the end
}

TEST(Simulation, TheSameSeedGivesTheSameReport) {
  TraceOptions load{.duration = 100, .tenants = 3, .cancel_fraction = 0.1};

  const std::string first = to_json(report(load)).dump(), second = to_json(report(load)).dump();
  load.seed = 2;
  const std::string other = to_json(report(load)).dump();

  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
}

TEST(Trace, IsTheSameOnEveryMachine) {
  const auto arrivals = make_trace({.rate = 1, .duration = 10}, 0);

  ASSERT_GE(arrivals.size(), 3u);
  EXPECT_EQ(arrivals[0].time, 143'728us);
  EXPECT_EQ(arrivals[0].prompt_tokens, 122);
  EXPECT_EQ(arrivals[2].time, 801'275us);
  EXPECT_EQ(arrivals[2].output_tokens, 36);
  EXPECT_EQ(output_id(3, 7), 17489);
}

TEST(Trace, ComesAtItsRate) {
  const auto arrivals = make_trace({.rate = 5, .duration = 1000}, 0);

  EXPECT_NEAR(double(arrivals.size()), 5000, 300);
  EXPECT_TRUE(std::ranges::is_sorted(arrivals, {}, &Arrival::time));
}

TEST(Trace, PromptsShareTheirPrefixAndNothingElse) {
  const auto arrivals = make_trace({.kind = TraceKind::shared_prefix, .rate = 1, .duration = 20, .prefix_tokens = 100}, 0);

  const auto a = prompt_ids(arrivals[0], 0), b = prompt_ids(arrivals[1], 1);
  EXPECT_EQ(std::ranges::mismatch(a, b).in1 - a.begin(), 100);
}

TEST(Trace, ABurstComesAtOnce) {
  const auto arrivals = make_trace({.kind = TraceKind::bursts, .rate = 1, .duration = 60}, 0);

  for (const Arrival& arrival : arrivals)
    EXPECT_EQ(arrival.time % 20s, 0s);
}

} // namespace
} // namespace millrace::simulate::testing
