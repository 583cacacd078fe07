#include "gateway/metrics.hpp"
#include "gateway/streams.hpp"
#include "tests/gateway/exposition.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <thread>
#include <vector>

namespace millrace::test {
namespace {

using std::chrono::milliseconds;

Token token(int64_t seq, int32_t choice = 0) {
  Token event;
  event.choice = choice;
  event.seq = seq;
  return event;
}

class MetricsTest : public testing::Test {
protected:
  /// What a series is at now; the label model_name is left out.
  double value(const std::string& series) {
    return Exposition(metrics_.scrape(stats_, streams_)).value(series);
  }

  ServerStats stats_;
  StreamsStats streams_;
  Metrics metrics_{"tales"};
  StreamTimes times_;
};

TEST_F(MetricsTest, IsWellFormedFromTheStart) {
  stats_.state = "serving";
  metrics_.http("/v1/models", 200, 0.001);
  metrics_.refused("busy");

  const Exposition text(metrics_.scrape(stats_, streams_));

  EXPECT_EQ(text.faults(), std::vector<std::string>{});
  EXPECT_EQ(text.value("vllm:num_requests_running"), 0);
  EXPECT_EQ(text.value("vllm:request_success_total{finished_reason=\"stop\"}"), 0);
  EXPECT_GT(text.value("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(text.value("process_open_fds"), 2);
}

TEST_F(MetricsTest, NamesTheModelInEverySeries) {
  const std::string text = metrics_.scrape(stats_, streams_);

  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (line[0] != '#') {
      EXPECT_NE(line.find("model_name=\"tales\""), line.npos) << line;
    }
  }
}

TEST_F(MetricsTest, EscapesANameThatIsNotPlain) {
  Metrics metrics("a\"b\\c\nd\xff");

  const Exposition text(metrics.scrape(stats_, streams_));

  EXPECT_EQ(text.faults(), std::vector<std::string>{});
}

TEST_F(MetricsTest, MeasuresTheFirstTokenOnceAndTheGapsOfEachChoice) {
  metrics_.opened(times_);
  for (const Token& event : {token(0, 0), token(0, 1), token(1, 0), token(1, 1), token(2, 1)})
    metrics_.event(event, times_);

  EXPECT_EQ(value("vllm:time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_count"), 3);
}

TEST_F(MetricsTest, PutsAGapIntoItsBucket) {
  metrics_.opened(times_);
  metrics_.event(token(0), times_);
  times_.last_tokens[0] -= milliseconds(60);
  metrics_.event(token(1), times_);

  EXPECT_EQ(value("vllm:inter_token_latency_seconds_bucket{le=\"0.05\"}"), 0);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_bucket{le=\"80\"}"), 1);
  EXPECT_GE(value("vllm:inter_token_latency_seconds_sum"), 0.06);
}

TEST_F(MetricsTest, CountsHowChoicesEnd) {
  for (const char* reason : {"stop", "stop", "length", "cancelled", "deadline", "error"}) {
    Finished finished;
    finished.reason = reason;
    metrics_.event(finished, times_);
  }

  EXPECT_EQ(value("vllm:request_success_total{finished_reason=\"stop\"}"), 2);
  EXPECT_EQ(value("vllm:request_success_total{finished_reason=\"length\"}"), 1);
  EXPECT_EQ(value("vllm:request_success_total{finished_reason=\"abort\"}"), 1);
  EXPECT_EQ(value("vllm:request_success_total{finished_reason=\"deadline\"}"), 1);
  EXPECT_EQ(value("vllm:request_success_total{finished_reason=\"error\"}"), 1);
}

TEST_F(MetricsTest, TakesTheTimesOfARequestFromItsEnd) {
  times_.max_tokens = 30;
  metrics_.opened(times_);
  metrics_.event(Done{.request = {},
                      .prompt_tokens = 7,
                      .generated_tokens = 12,
                      .queue_ms = 20,
                      .prefill_ms = 200,
                      .decode_ms = 2'000},
                 times_);

  EXPECT_EQ(value("vllm:e2e_request_latency_seconds_count"), 1);
  EXPECT_NEAR(value("vllm:request_queue_time_seconds_sum"), 0.02, 1e-9);
  EXPECT_NEAR(value("vllm:request_prefill_time_seconds_sum"), 0.2, 1e-9);
  EXPECT_NEAR(value("vllm:request_decode_time_seconds_sum"), 2, 1e-9);
  EXPECT_EQ(value("vllm:request_prompt_tokens_sum"), 7);
  EXPECT_EQ(value("vllm:request_generation_tokens_sum"), 12);
  EXPECT_EQ(value("vllm:request_params_max_tokens_sum"), 30);
}

TEST_F(MetricsTest, MeasuresNoLatencyThatBeganInAnotherProcess) {
  times_.resumed = true;
  metrics_.event(token(5), times_);
  metrics_.event(token(6), times_);
  Done done;
  done.prompt_tokens = 7;
  metrics_.event(done, times_);

  EXPECT_EQ(value("vllm:time_to_first_token_seconds_count"), 0);
  EXPECT_EQ(value("vllm:e2e_request_latency_seconds_count"), 0);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_count"), 1);
  EXPECT_EQ(value("vllm:request_prompt_tokens_count"), 1);
}

TEST_F(MetricsTest, CountsRefusalsBeforeAndAfterAdmissionAndMakesNoLabelOfUnknownWords) {
  metrics_.refused("busy");
  Rejected rejected;
  rejected.error = "busy";
  metrics_.event(rejected, times_);
  metrics_.refused("what the client sent");

  EXPECT_EQ(value("millrace:requests_refused_total{error=\"busy\"}"), 2);
  EXPECT_EQ(value("millrace:requests_refused_total{error=\"other\"}"), 1);
}

TEST_F(MetricsTest, TellsTheStateAsOneOfMany) {
  stats_.state = "stalled";
  EXPECT_EQ(value("millrace:state{state=\"stalled\"}"), 1);
  EXPECT_EQ(value("millrace:state{state=\"serving\"}"), 0);
  stats_.state = "serving";
  EXPECT_EQ(value("millrace:state{state=\"stalled\"}"), 0);
  EXPECT_EQ(value("millrace:state{state=\"serving\"}"), 1);
}

TEST_F(MetricsTest, FollowsTheServersOwnCountsAlsoWhenTheyBeginAnew) {
  stats_.generated_tokens = 10;
  EXPECT_EQ(value("vllm:generation_tokens_total"), 10);
  stats_.generated_tokens = 25;
  EXPECT_EQ(value("vllm:generation_tokens_total"), 25);
  stats_.generated_tokens = 4;
  EXPECT_EQ(value("vllm:generation_tokens_total"), 29);
}

TEST_F(MetricsTest, GivesTheUseOfTheCacheAsAPartOfOne) {
  stats_.kv_blocks_used = 3;
  stats_.kv_blocks_total = 12;

  EXPECT_EQ(value("vllm:kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(value("millrace:kv_blocks_used"), 3);
}

TEST_F(MetricsTest, TellsWhatTheSchedulerDid) {
  SchedulerStats& scheduler = stats_.scheduler;
  scheduler.preempted = 1;
  scheduler.yielded = 2;
  scheduler.cancelled = 3;
  scheduler.expired = 4;
  scheduler.cache_queries = 100;
  scheduler.cache_hits = 60;
  scheduler.cache_evictions = 5;
  scheduler.kv_blocks_cached = 6;
  scheduler.prefill_passes = 7;
  scheduler.prefill_rows = 70;
  scheduler.prefill_seconds = 0.7;
  scheduler.decode_passes = 8;
  scheduler.decode_rows = 80;
  scheduler.decode_seconds = 0.8;
  scheduler.loop_seconds = 0.09;

  EXPECT_EQ(value("vllm:num_preemptions_total"), 1);
  EXPECT_EQ(value("millrace:sequences_yielded_total"), 2);
  EXPECT_EQ(value("millrace:requests_cancelled_total"), 3);
  EXPECT_EQ(value("millrace:requests_expired_total"), 4);
  EXPECT_EQ(value("vllm:prefix_cache_queries_total"), 100);
  EXPECT_EQ(value("vllm:prefix_cache_hits_total"), 60);
  EXPECT_EQ(value("millrace:prefix_cache_evictions_total"), 5);
  EXPECT_EQ(value("millrace:kv_blocks_cached"), 6);
  EXPECT_EQ(value("millrace:phase_passes_total{phase=\"prefill\"}"), 7);
  EXPECT_EQ(value("millrace:phase_rows_total{phase=\"prefill\"}"), 70);
  EXPECT_NEAR(value("millrace:phase_seconds_total{phase=\"prefill\"}"), 0.7, 1e-9);
  EXPECT_EQ(value("millrace:phase_passes_total{phase=\"decode\"}"), 8);
  EXPECT_EQ(value("millrace:phase_rows_total{phase=\"decode\"}"), 80);
  EXPECT_NEAR(value("millrace:phase_seconds_total{phase=\"decode\"}"), 0.8, 1e-9);
  EXPECT_NEAR(value("millrace:decode_loop_seconds_total"), 0.09, 1e-9);
}

TEST_F(MetricsTest, ComparesPassesWithPeaksOnceBothAreKnown) {
  const auto tells = [this](const std::string& name) {
    return Exposition(metrics_.scrape(stats_, streams_)).types().contains(name);
  };
  SchedulerStats& scheduler = stats_.scheduler;
  scheduler.decode_seconds = 2;
  scheduler.prefill_seconds = 4;
  EXPECT_FALSE(tells("millrace:decode_bytes_per_second"));
  EXPECT_FALSE(tells("millrace:prefill_operations_per_second"));

  scheduler.decode_bytes = 10e9;
  scheduler.prefill_operations = 100e9;
  EXPECT_NEAR(value("millrace:decode_bytes_per_second"), 5e9, 1);
  EXPECT_NEAR(value("millrace:prefill_operations_per_second"), 25e9, 1);
  EXPECT_FALSE(tells("millrace:decode_peak_ratio"));
  EXPECT_FALSE(tells("millrace:prefill_peak_ratio"));

  scheduler.peak_bytes_per_second = 20e9;
  scheduler.peak_operations_per_second = 100e9;
  EXPECT_NEAR(value("millrace:decode_peak_ratio"), 0.25, 1e-9);
  EXPECT_NEAR(value("millrace:prefill_peak_ratio"), 0.25, 1e-9);
}

TEST_F(MetricsTest, CountsLateReleasesTogether) {
  stats_.scheduler.cancel_passes = {1, 2, 3, 4, 5};

  EXPECT_EQ(value("millrace:sequences_freed_total{passes=\"0\"}"), 1);
  EXPECT_EQ(value("millrace:sequences_freed_total{passes=\"1\"}"), 2);
  EXPECT_EQ(value("millrace:sequences_freed_total{passes=\"2\"}"), 3);
  EXPECT_EQ(value("millrace:sequences_freed_total{passes=\"3+\"}"), 9);
}

TEST_F(MetricsTest, CountsAnswersByRouteAndStatus) {
  metrics_.http("/v1/completions", 200, 0.2);
  metrics_.http("/v1/completions", 200, 0.3);
  metrics_.http("/v1/completions", 400, 0.001);

  EXPECT_EQ(value("millrace:http_requests_total{route=\"/v1/completions\",status=\"200\"}"), 2);
  EXPECT_EQ(value("millrace:http_requests_total{route=\"/v1/completions\",status=\"400\"}"), 1);
  EXPECT_EQ(value("millrace:http_request_duration_seconds_count{route=\"/v1/completions\"}"), 3);
}

TEST_F(MetricsTest, DoesNotGrowWithTheNumberOfRoutes) {
  for (int i = 0; i < 10'000; ++i)
    metrics_.http("/" + std::to_string(i), 1'000 + i, 0.1);

  EXPECT_LT(metrics_.scrape(stats_, streams_).size(), 1u << 20);
}

TEST_F(MetricsTest, CountsEverythingThatManyThreadsTell) {
  constexpr int kThreads = 4, kEach = 2'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      StreamTimes times;
      metrics_.opened(times);
      for (int i = 0; i <= kEach; ++i)
        metrics_.event(token(i), times);
      metrics_.http("/health", 200, 0.1);
    });
  for (int i = 0; i < 20; ++i)
    metrics_.scrape(stats_, streams_);
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(value("vllm:inter_token_latency_seconds_count"), kThreads * kEach);
  EXPECT_EQ(value("millrace:requests_total"), kThreads);
  EXPECT_EQ(value("millrace:http_requests_total{route=\"/health\",status=\"200\"}"), kThreads);
}

/// The rows of the table "Metrics": name and type.
std::map<std::string, std::string> documented_metrics() {
  std::ifstream file(MILLRACE_DOCS "/operations.md");
  std::map<std::string, std::string> rows;
  const std::regex row(R"(\| `((?:vllm:|millrace:|process_)[a-z0-9_]+)` \| ([a-z]+) .*)");
  std::smatch match;
  for (std::string line; std::getline(file, line);)
    if (std::regex_match(line, match, row))
      rows.emplace(match[1], match[2]);
  return rows;
}

TEST_F(MetricsTest, AreThoseOfTheDocument) {
  metrics_.refused("busy");
  metrics_.http("/health", 200, 0.1);
  SchedulerStats& scheduler = stats_.scheduler;
  scheduler.decode_bytes = scheduler.decode_seconds = scheduler.peak_bytes_per_second = 1;
  scheduler.prefill_operations = scheduler.prefill_seconds = scheduler.peak_operations_per_second = 1;

  EXPECT_EQ(Exposition(metrics_.scrape(stats_, streams_)).types(), documented_metrics());
}

} // namespace
} // namespace millrace::test
