#include "tools/simulate/cost_model.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace::simulate {
namespace {

// As `millrace bench` prints it: 128 rows of 4 ms a pass at most, and 25 ms for one row.
constexpr const char* kTable = R"(A CPU @ 2.00GHz, with a comma, 2 threads, avx512vnni, activations q8
qwen: 0.5b: 392.0 MB of weights and 0.988 Gop for each generated token

probe    read 21.5 GB/s   int8 300 Gop/s   f32 90 Gop/s
prefill    512 tokens      250.0 tokens/s (240.0 … 260.0)      0.8 GB/s,  4 % of read     180.2 Gop/s, 60 % of int8
decode     128 tokens       40.0 tokens/s (39.0 … 41.0)     15.7 GB/s, 73 % of read      39.5 Gop/s, 13 % of int8
loop     85 us a token beyond the pass, when the actors run it
)";
constexpr const char* kJson =
    R"({"cpu":"A CPU @ 2.00GHz, with a comma","threads":2,"isa":"avx512vnni","activations":"q8","model":"qwen: 0.5b",)"
    R"("bytes_per_token":392000000,"operations_per_token":988000000,"probes":{"read_gb_s":21.5},)"
    R"("prefill":{"tokens":512,"tokens_s":250,"min_tokens_s":240,"max_tokens_s":260},)"
    R"("decode":{"tokens":128,"tokens_s":40,"min_tokens_s":39,"max_tokens_s":41},"loop_overhead_us":85})";

TEST(CostModel, ReadsBenchAsTableAndAsJson) {
  for (const char* text : {kTable, kJson}) {
    const BenchReport report = read_bench(text);

    EXPECT_EQ(report.cpu, "A CPU @ 2.00GHz, with a comma");
    EXPECT_EQ(report.model, "qwen: 0.5b");
    EXPECT_EQ(report.threads, 2);
    EXPECT_EQ(report.prefill.tokens, 512);
    EXPECT_EQ(report.prefill.tokens_s, 250);
    EXPECT_EQ(report.decode.tokens_s, 40);
    EXPECT_EQ(report.loop_overhead_us, 85);
  }
}

TEST(CostModel, FitsALineThroughStepsAndPasses) {
  const CostModel cost = fit({read_bench(kJson)}, 128);

  EXPECT_NEAR(cost.decode.seconds(1, 1000), 0.025, 1e-9);
  EXPECT_NEAR(cost.prefill.seconds(128, 1000), 128 * 0.004, 1e-9);
  EXPECT_NEAR(cost.loop, 85e-6, 1e-12);
  EXPECT_EQ(cost.source, "bench: qwen: 0.5b on A CPU @ 2.00GHz, with a comma, 2 threads");
}

TEST(CostModel, APromptShorterThanTheChunkIsOnePass) {
  BenchReport report = read_bench(kJson);
  report.prefill = {.tokens = 32, .tokens_s = 200};

  EXPECT_NEAR(fit({report}, 128).prefill.seconds(32, 0), 0.16, 1e-9);
  const CostModel both = fit({report, read_bench(kJson)}, 128);
  EXPECT_NEAR(both.decode.seconds(1, 0), 0.025, 0.02);
  EXPECT_EQ(both.source, fit({report}, 128).source) << "the same model and CPU are named once";
}

TEST(CostModel, RefusesWhatIsNoBench) {
  EXPECT_THROW(read_bench(""), std::invalid_argument);
  EXPECT_THROW(read_bench("{}"), std::invalid_argument);
  EXPECT_THROW(read_bench("{"), std::invalid_argument);
  EXPECT_THROW(read_bench("decode 128 tokens 40.0 tokens/s"), std::invalid_argument);
  BenchReport same = read_bench(kJson);
  same.prefill = {.tokens = 1, .tokens_s = 40};
  EXPECT_THROW(fit({same}, 128), std::invalid_argument);
  BenchReport falling = read_bench(kJson);
  falling.prefill.tokens_s = 1e6;
  EXPECT_THROW(fit({falling}, 128), std::invalid_argument);
}

TEST(CostModel, DefaultsAreThoseThatTheirCommentStates) {
  const CostModel cost;

  EXPECT_NEAR(cost.decode.seconds(1, 0), 0.030, 1e-9);
  EXPECT_NEAR(cost.decode.seconds(2, 0), 0.033, 1e-9);
  EXPECT_NEAR(cost.prefill.seconds(128, 0) / 128, 0.004, 1e-4);
}

} // namespace
} // namespace millrace::simulate
