#include "tools/simulate/report.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace millrace::simulate {
namespace {

Outcome finished(double ttft, std::vector<Seconds> gaps = {}) {
  Outcome outcome;
  outcome.end = Outcome::End::finished;
  outcome.queue_wait = Seconds(0);
  outcome.time_to_first_token = Seconds(ttft);
  outcome.tokens = int32_t(gaps.size()) + 1;
  outcome.gaps = std::move(gaps);
  outcome.read_tokens = 10;
  outcome.ended = Seconds(2);
  return outcome;
}

TEST(Report, PercentilesAreSamples) {
  std::vector<Seconds> samples;
  for (int i = 100; i > 0; --i)
    samples.push_back(Seconds(i * 1e-3));

  const Percentiles ms = percentiles(samples);

  EXPECT_DOUBLE_EQ(ms.p50, 50);
  EXPECT_DOUBLE_EQ(ms.p99, 99);
  EXPECT_DOUBLE_EQ(ms.max, 100);
  EXPECT_DOUBLE_EQ(percentiles({Seconds(0.007)}).p99, 7);
  EXPECT_EQ(percentiles({}).samples, 0u);
}

TEST(Report, JainsIndexIsOneForEqualSharesAndOneNthForAll) {
  EXPECT_DOUBLE_EQ(jain_index({3, 3, 3}), 1);
  EXPECT_DOUBLE_EQ(jain_index({5, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(jain_index({0, 0}), 1);
}

TEST(Report, CountsAsGoodWhatKeepsBothLimits) {
  const std::vector<Arrival> trace(4);
  Result result;
  result.duration = Seconds(2);
  result.outcomes = {finished(1, {Seconds(0.1)}), finished(6), finished(1, {Seconds(0.1), Seconds(0.6)}), Outcome{}};
  result.outcomes[3].end = Outcome::End::refused;

  EXPECT_DOUBLE_EQ(make_report(trace, result, {.ttft_ms = 5000, .gap_ms = 500}).goodput, 0.5);
  EXPECT_DOUBLE_EQ(make_report(trace, result, {.ttft_ms = 5000, .gap_ms = 0}).goodput, 1);
  EXPECT_DOUBLE_EQ(make_report(trace, result, {.ttft_ms = 0, .gap_ms = 0}).goodput, 1.5);
  const Report report = make_report(trace, result, {});
  EXPECT_EQ(report.finished, 3);
  EXPECT_EQ(report.refused, 1);
  EXPECT_DOUBLE_EQ(report.prompt_tokens_s, 15);
  EXPECT_DOUBLE_EQ(report.output_tokens_s, 3);
  EXPECT_EQ(report.tenants[0].service, 30 + 2 * 6);
}

TEST(Report, TableAndJsonTellTheSame) {
  const std::vector<Arrival> trace(1);
  Result result;
  result.duration = Seconds(2);
  result.outcomes = {finished(0.25)};
  const Report report = make_report(trace, result, {});

  EXPECT_EQ(to_json(report)["ttft"]["p99_ms"], 250.0);
  EXPECT_NE(to_table(report, {}).find("time to first token         250.0      250.0      250.0 ms"), std::string::npos);
  EXPECT_NE(to_table(report, {}).find("not measured"), std::string::npos);
}

} // namespace
} // namespace millrace::simulate
