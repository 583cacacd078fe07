// Qwen2.5-0.5B against a float64 reference on its exactly dequantised weights. The reference's own text is fed
// (teacher forcing), since free-running text differs for good after one near-tie.

#include "model/device.hpp"
#include "model/model.hpp"
#include "model/sampler.hpp"
#include "model/text/tokenizer.hpp"
#include "tests/real_models.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ostream>

namespace millrace {
namespace {

constexpr const char* kModelFile = "qwen2.5-0.5b-q4_k_m.gguf";
constexpr int32_t kContext = 1024;
constexpr int32_t kRowsPerPass = 64; // bounds the logits in memory: 64 x 151936 floats

std::string read_file(const std::string& name) {
  std::ifstream file(MILLRACE_TEST_DATA "/real/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

nlohmann::json read_golden(const std::string& name) { return nlohmann::json::parse(read_file(name)); }

/// What a path may differ by.
struct Tolerance {
  Activations activations;
  double gap;          // of the reference's two best: above it, the best must be the same
  double logprob;      // mean distance over the reference's 20 best of all prompts
  double perplexity;   // relative
};

/// The name of a case; without it GoogleTest would print the struct's bytes, padding and all.
void PrintTo(const Tolerance& tolerance, std::ostream* out) {
  *out << (tolerance.activations == Activations::f32 ? "f32" : "q8");
}

class RealWeights : public ::testing::TestWithParam<Tolerance> {
protected:
  void SetUp() override {
    auto path = real_model(kModelFile);
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: run tools/fetch_models";
    model_ = Model::open(path.string());
    CpuDeviceOptions options;
    options.isa = active_isa();
    options.activations = GetParam().activations;
    options.context_length = kContext;
    options.kv_positions = kContext;
    device_ = make_cpu_device(model_, options);
  }

  /// Runs the tokens as one new sequence and calls use(position, logits) for each position from `first` on.
  template <class Use> void run(const std::vector<TokenId>& ids, int32_t first, Use use) {
    auto table = device_->blocks().allocate(int64_t(ids.size()));
    ASSERT_NE(table, nullptr);
    const auto vocab = size_t(device_->config().vocab_size);
    std::vector<float> logits;
    for (size_t begin = 0; begin < ids.size(); begin += kRowsPerPass) {
      std::vector<Row> rows;
      for (size_t i = begin; i < std::min(ids.size(), begin + kRowsPerPass); ++i)
        rows.push_back({ids[i], int32_t(i), table->blocks(), int32_t(i) >= first});
      auto wanted = size_t(std::count_if(rows.begin(), rows.end(), [](auto& row) { return row.wants_logits; }));
      logits.resize(wanted * vocab);
      device_->forward(rows, logits);
      auto* next = logits.data();
      for (auto& row : rows)
        if (row.wants_logits) {
          use(row.position, std::span<const float>(next, vocab));
          next += vocab;
        }
    }
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Device> device_;
};

TEST_P(RealWeights, ChooseTheReferencesTokens) {
  auto golden = read_golden("qwen2.5-0.5b-q4_k_m.json");
  int compared = 0;
  double distance = 0; // mean over the prompts. A lone first token has outliers that 8 bits serve worst.
  for (auto& [name, prompt] : golden["prompts"].items()) {
    auto greedy = prompt["greedy48"].get<std::vector<TokenId>>();
    auto gaps = prompt["greedy_top1_top2_gap"].get<std::vector<double>>();
    auto logprobs = prompt["greedy_logprob"].get<std::vector<double>>();
    auto ids = prompt["ids"].get<std::vector<TokenId>>();
    const auto first = int32_t(ids.size()) - 1;
    ids.insert(ids.end(), greedy.begin(), greedy.end() - 1);
    double top_distance = 0, greedy_distance = 0;

    run(ids, first, [&](int32_t position, std::span<const float> logits) {
      auto i = size_t(position - first);
      auto best = TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (gaps[i] > GetParam().gap) {
        EXPECT_EQ(best, greedy[i]) << name << ", token " << i << ", gap " << gaps[i];
        ++compared;
      }
      auto normaliser = log_sum_exp(logits);
      greedy_distance += std::abs(logits[size_t(greedy[i])] - normaliser - logprobs[i]) / double(greedy.size());
      if (i == 0)
        for (auto& top : prompt["top20"])
          top_distance += std::abs(logits[top[0].get<size_t>()] - normaliser - top[2].get<double>()) / 20;
    });

    std::printf("%s: mean log-prob distance %.5f over the top 20, %.5f over the greedy tokens\n", name.c_str(),
                top_distance, greedy_distance);
    distance += top_distance / double(golden["prompts"].size());
  }
  EXPECT_LT(distance, GetParam().logprob);
  std::printf("%d tokens compared, mean log-prob distance %.5f\n", compared, distance);
  EXPECT_GT(compared, 100);
}

// As llama.cpp's tool does: chunks of 512, the predictions of tokens 257 to 511 of each.
TEST_P(RealWeights, HaveTheReferencesPerplexity) {
  constexpr size_t kChunk = 512;
  auto golden = read_golden("perplexity.json")["qwen2.5-0.5b-q4_k_m"];
  auto reference = golden["ppl_second_half(llama-perplexity convention)"].get<double>();
  auto ids = Tokenizer(model_->file()).encode(read_file("ppl_alice_20k.txt"), {.add_bos = false});
  ASSERT_EQ(ids.size(), golden["tokens_total"].get<size_t>());
  double sum = 0;
  int64_t count = 0;

  for (size_t begin = 0; begin + kChunk <= ids.size(); begin += kChunk) {
    std::vector<TokenId> chunk(ids.begin() + int64_t(begin), ids.begin() + int64_t(begin + kChunk));
    run(chunk, kChunk / 2, [&](int32_t position, std::span<const float> logits) {
      if (position == kChunk - 1) return;
      sum += log_sum_exp(logits) - logits[size_t(chunk[size_t(position) + 1])];
      ++count;
    });
  }

  auto perplexity = std::exp(sum / double(count));
  std::printf("perplexity %.6f, reference %.6f: %+.4f %%\n", perplexity, reference, 100 * (perplexity / reference - 1));
  EXPECT_NEAR(perplexity / reference, 1, GetParam().perplexity);
}

INSTANTIATE_TEST_SUITE_P(Float, RealWeights, ::testing::Values(Tolerance{Activations::f32, 0.01, 0.001, 0.001}));
INSTANTIATE_TEST_SUITE_P(EightBit, RealWeights, ::testing::Values(Tolerance{Activations::q8, 0.5, 0.1, 0.005}));

TEST(RealTokenizer, EncodesAsTheReference) {
  auto path = real_model(kModelFile);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: run tools/fetch_models";
  GgufFile file(path.string());
  Tokenizer tokenizer(file);

  auto golden = read_golden("qwen2.5-0.5b-q4_k_m.json");
  for (auto& c : golden["tokenizer"]) {
    auto text = c["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, {.add_bos = false}), c["ids_plain"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(tokenizer.encode(text, {.add_bos = false, .parse_special = true}),
              c["ids_special_parse"].get<std::vector<TokenId>>())
        << text;
  }
}

} // namespace
} // namespace millrace
