// Logits and greedy tokens of tiny models against a float reference on the exactly dequantised weights.

#include "golden_model.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

struct Path {
  Isa isa;
  Activations activations;
};

std::vector<Path> paths(Activations activations) {
  std::vector<Path> paths;
  for (Isa isa : available_isas())
    if (isa != Isa::scalar || activations == Activations::f32) // the scalar path has float activations only
      paths.push_back({isa, activations});
  return paths;
}

std::string path_name(const testing::TestParamInfo<Path>& info) {
  return to_string(info.param.isa);
}

struct Distance {
  double max = 0, sum = 0;
  int64_t count = 0;
  double mean() const { return sum / double(count); }
};

class Golden : public testing::TestWithParam<Path> {
protected:
  static std::unique_ptr<Device> device(const std::string& model) {
    return make_cpu_device(tiny_model(model), {.threads = 2,
                                               .context_length = 0,
                                               .kv_positions = 512,
                                               .isa = GetParam().isa,
                                               .activations = GetParam().activations,
                                               .progress = {}});
  }

  /// Feeds the tokens in one pass and compares the logits of the golden positions.
  static Distance compare(Device& device, const std::vector<TokenId>& tokens, const nlohmann::json& golden) {
    auto logits = Feeder{device, int64_t(tokens.size())}.feed(tokens);
    Distance distance;
    for (size_t i = 0; i < golden["positions"].size(); ++i) {
      const float* row = &logits[golden["positions"][i].get<size_t>() * size_t(device.config().vocab_size)];
      for (const auto& want : golden["logits"][i]) {
        double difference = std::abs(double(*row++) - want.get<double>());
        distance.max = std::max(distance.max, std::isnan(difference) ? INFINITY : difference);
        distance.sum += difference;
        ++distance.count;
      }
    }
    return distance;
  }

  static std::vector<TokenId> greedy(Device& device, std::vector<TokenId> prompt, size_t n) {
    Feeder feeder{device, int64_t(prompt.size() + n)};
    auto vocab = size_t(device.config().vocab_size);
    std::vector<TokenId> tokens;
    for (std::vector<TokenId> next = std::move(prompt); tokens.size() < n; next = {tokens.back()}) {
      auto logits = feeder.feed(next);
      tokens.push_back(most_likely(std::span{logits}.last(vocab)));
    }
    return tokens;
  }
};

class GoldenFloat : public Golden {};
INSTANTIATE_TEST_SUITE_P(, GoldenFloat, testing::ValuesIn(paths(Activations::f32)), path_name);
class GoldenQ8 : public Golden {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenQ8);
INSTANTIATE_TEST_SUITE_P(, GoldenQ8, testing::ValuesIn(paths(Activations::q8)), path_name);

constexpr double kFloatTolerance = 1e-3, kDequantisedTolerance = 2e-3;

TEST_P(GoldenFloat, LogitsOfF32Files) {
  for (std::string name : {"llama", "qwen2", "llama3-rope", "stories260K"}) {
    auto golden = tiny_golden(name);
    auto cpu = device(name + "-F32");
    for (auto& sequence : golden["sequences"])
      EXPECT_LT(compare(*cpu, sequence["tokens"], sequence).max, kFloatTolerance) << name;
  }
}

TEST_P(GoldenFloat, LogitsOfQuantisedFiles) {
  for (std::string name : {"llama", "qwen2", "llama3-rope"}) {
    auto golden = tiny_golden(name);
    for (auto& [type, variant] : golden["variants"].items()) {
      auto cpu = device(name + "-" + type);
      auto& tokens = golden["sequences"][variant["sequence"].get<size_t>()]["tokens"];
      EXPECT_LT(compare(*cpu, tokens, variant).max, kDequantisedTolerance) << name << ' ' << type;
    }
  }
}

// One file with Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL and IQ4_XS.
TEST_P(GoldenFloat, LogitsAndGreedyTokensOfKQuants) {
  auto golden = tiny_golden("llama-kq");
  auto cpu = device("llama-kq-mixed");
  for (auto& sequence : golden["sequences"])
    EXPECT_LT(compare(*cpu, sequence["tokens"], sequence).max, kDequantisedTolerance);
  ASSERT_GT(golden["greedy"]["min_top2_margin"].get<double>(), 2 * kDequantisedTolerance);
  auto want = golden["greedy"]["tokens"].get<std::vector<TokenId>>();
  EXPECT_EQ(greedy(*cpu, golden["greedy"]["prompt"], want.size()), want);
}

TEST_P(GoldenFloat, GreedyTokens) {
  for (std::string name : {"llama", "qwen2", "llama3-rope"}) {
    auto golden = tiny_golden(name);
    auto want = golden["greedy"]["tokens"].get<std::vector<TokenId>>();
    EXPECT_EQ(greedy(*device(name + "-F32"), golden["greedy"]["prompt"], want.size()), want) << name;

    for (auto& [type, variant] : golden["variants"].items()) {
      if (variant["min_top2_margin"] < 2 * kDequantisedTolerance)
        continue;
      want = variant["greedy"].get<std::vector<TokenId>>();
      auto& prompt = golden["sequences"][variant["sequence"].get<size_t>()]["tokens"];
      EXPECT_EQ(greedy(*device(name + "-" + type), prompt, want.size()), want) << name << ' ' << type;
    }
  }
  auto stories = tiny_golden("stories260K"); // a real model, whose widths are no multiple of 32
  for (auto& story : stories["greedy"]) {
    auto want = story["ids"].get<std::vector<TokenId>>();
    auto prompt = story["prompt_ids"].get<std::vector<TokenId>>();
    if (want.size() > prompt.size() && std::equal(prompt.begin(), prompt.end(), want.begin()))
      want.erase(want.begin(), want.begin() + int64_t(prompt.size()));
    EXPECT_EQ(greedy(*device("stories260K-F32"), prompt, want.size()), want);
  }
}

// Matrices of floats are multiplied with float activations on every path.
TEST_P(GoldenQ8, LogitsOfF32Files) {
  for (std::string name : {"llama", "stories260K"}) {
    auto sequence = tiny_golden(name)["sequences"].back();
    EXPECT_LT(compare(*device(name + "-F32"), sequence["tokens"], sequence).max, kFloatTolerance) << name;
  }
}

TEST_P(GoldenQ8, LogitsOfKQuants) {
  auto golden = tiny_golden("llama-kq");
  auto cpu = device("llama-kq-mixed");
  Distance all;
  for (auto& sequence : golden["sequences"]) {
    auto distance = compare(*cpu, sequence["tokens"], sequence);
    EXPECT_LT(distance.max, 0.3);
    all.sum += distance.sum;
    all.count += distance.count;
  }
  EXPECT_LT(all.mean(), 0.05);
}

TEST_P(GoldenQ8, LogitsOfQuantisedFiles) {
  for (std::string name : {"llama", "qwen2", "llama3-rope"}) {
    auto golden = tiny_golden(name);
    for (auto& [type, variant] : golden["variants"].items()) {
      auto& tokens = golden["sequences"][variant["sequence"].get<size_t>()]["tokens"];
      auto distance = compare(*device(name + "-" + type), tokens, variant);
      EXPECT_LT(distance.max, 0.3) << name << ' ' << type;
      EXPECT_LT(distance.mean(), 0.05) << name << ' ' << type;
    }
  }
}

} // namespace
} // namespace millrace
