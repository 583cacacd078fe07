#include "model/philox.hpp"
#include "model/sampler.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr int kFullVocabulary = 151'936; // Qwen2's

SamplerParams plain() {
  SamplerParams params;
  params.temperature = 1;
  params.top_p = 1;
  return params;
}

std::vector<float> normal_logits(size_t size, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits)
    logit = normal(random);
  return logits;
}

/// The cuts by their definitions: sort everything, in double.
std::vector<Candidate> by_definition(const std::vector<float>& logits, const SamplerParams& params) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const double max = logits[order[0]];
  std::vector<double> weights;
  for (const TokenId id : order)
    weights.push_back(std::exp((logits[id] - max) / static_cast<double>(params.temperature)));
  const auto cut = [&](size_t size) { weights.resize(std::min(size, weights.size())); };

  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < weights.size()) {
    size_t size = params.top_k;
    while (size < weights.size() && logits[order[size]] == logits[order[size - 1]])
      ++size;
    cut(size);
  }
  if (params.top_p < 1) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    double mass = 0;
    size_t size = 0;
    while (size < weights.size() && mass < params.top_p * (1 - 0x1p-24) * total)
      mass += weights[size++];
    cut(size);
  }
  if (params.min_p > 0)
    cut(std::find_if(weights.begin(), weights.end(), [&](double w) { return w < params.min_p; }) -
        weights.begin());
  while (weights.back() < 1e-307)
    weights.pop_back();

  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < weights.size(); ++i)
    candidates.push_back({order[i], static_cast<float>(weights[i] / total)});
  return candidates;
}

void expect_same(const std::vector<Candidate>& found, const std::vector<Candidate>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].id, expected[i].id) << i;
    ASSERT_NEAR(found[i].probability, expected[i].probability, 1e-7f + 1e-6f * expected[i].probability) << i;
  }
}

TEST(Philox, GivesTheKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, MakesUniformNumbersFromTheUpper53Bits) {
  const uint64_t bits = (uint64_t{0x6627e8d5} << 21) + (0xe169c58d >> 11); // of the first known answer
  EXPECT_EQ(philox_uniform(0, 0, 0, DrawPurpose::token), static_cast<double>(bits) / 9007199254740992.0);
  double least = 1, most = 0, sum = 0;
  for (uint64_t index = 0; index < 100'000; ++index) {
    const double u = philox_uniform(42, index, 0, DrawPurpose::token);
    least = std::min(least, u);
    most = std::max(most, u);
    sum += u;
  }
  EXPECT_GE(least, 0);
  EXPECT_LT(most, 1);
  EXPECT_NEAR(sum / 100'000, 0.5, 0.004);
}

TEST(Philox, UsesEveryBitOfSeedIndexAndChoice) {
  const auto u = [](uint64_t seed, uint64_t index, uint32_t choice) {
    return philox_uniform(seed, index, choice, DrawPurpose::token);
  };
  const double base = u(1, 2, 3);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(u(1 ^ uint64_t{1} << bit, 2, 3), base) << bit;
    EXPECT_NE(u(1, 2 ^ uint64_t{1} << bit, 3), base) << bit;
  }
  for (int bit = 0; bit < 32; ++bit)
    EXPECT_NE(u(1, 2, 3 ^ 1u << bit), base) << bit;
}

TEST(Softmax, ExponentiatesWithinItsBound) {
  for (int i = 0; i <= 700'000; ++i) {
    const double x = -i / 1000.0;
    ASSERT_NEAR(exp_nonpositive(x) / std::exp(x), 1, 3e-10) << x;
  }
  EXPECT_EQ(exp_nonpositive(0.0), 1);
  EXPECT_EQ(exp_nonpositive(-709.0), 0);
  EXPECT_EQ(exp_nonpositive(-1e300), 0);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<double>::infinity()), 0);
}

TEST(Softmax, SumsEveryLength) {
  for (size_t size = 1; size < 1100; size += size < 20 ? 1 : 37) {
    const auto logits = normal_logits(size, 4, size);
    long double sum = 0;
    for (const float logit : logits)
      sum += std::exp(static_cast<long double>(logit));
    EXPECT_NEAR(log_sum_exp(logits), static_cast<double>(std::log(sum)), 1e-9) << size;
  }
}

TEST(Softmax, HasNoSumOfWhatIsNotFinite) {
  EXPECT_TRUE(std::isnan(log_sum_exp({})));
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector{1.0f, kNan})));
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector{1.0f, kInfinity})));
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector{-kInfinity, -kInfinity})));
  EXPECT_EQ(log_sum_exp(std::vector{-kInfinity, 2.0f}), 2.0);
}

TEST(Softmax, FindsExtentAndWhatIsNotFinite) {
  EXPECT_EQ(extent(std::vector{-3.0f, -2.0f, -kInfinity}).max, -2.0f);
  EXPECT_EQ(extent(std::vector{-3.0f, 7.0f, 1.0f}).max, 7.0f);
  EXPECT_TRUE(extent(std::vector{-kInfinity, kLargest}).finite);
  EXPECT_TRUE(extent(std::vector{-kLargest}).finite);
  EXPECT_FALSE(extent({}).finite);
  EXPECT_FALSE(extent(std::vector{-kInfinity, -kInfinity}).finite);
  for (const float bad :
       {kNan, -kNan, std::bit_cast<float>(0xFFFFFFFF), std::bit_cast<float>(0x7F800001), kInfinity})
    for (size_t place = 0; place < 70; ++place) {
      std::vector<float> logits(70, 1.0f);
      logits[place] = bad;
      EXPECT_FALSE(extent(logits).finite) << place;
    }
}

class GoldenSampling : public testing::Test {
protected:
  static std::vector<float> floats(const nlohmann::json& values) {
    std::vector<float> result;
    for (const auto& value : values)
      result.push_back(value.is_null() ? -kInfinity : value.get<float>());
    return result;
  }

  nlohmann::json golden_ = nlohmann::json::parse(std::ifstream(MILLRACE_TEST_DATA "/sampling.json"));
};

TEST_F(GoldenSampling, IsReproducedInEveryCase) {
  size_t cases = 0;
  for (const auto& c : golden_.at("cases")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const auto& given = c.at("params");
    SamplerParams params = plain();
    params.temperature = given.value("temperature", 1.0f);
    params.top_k = given.value("top_k", 0);
    params.top_p = given.value("top_p", 1.0f);
    params.min_p = given.value("min_p", 0.0f);
    params.repetition_penalty = given.value("repetition_penalty", 1.0f);
    params.frequency_penalty = given.value("frequency_penalty", 0.0f);
    params.presence_penalty = given.value("presence_penalty", 0.0f);
    Sampler sampler(params, 1, 0, given.value("history", std::vector<TokenId>{}));
    for (const TokenId id : given.value("generated", std::vector<TokenId>{}))
      sampler.accept(id);
    const auto logits = floats(golden_.at("logits").at(c.at("logits").get<std::string>()));

    const auto distribution = sampler.distribution(logits);

    std::vector<float> probabilities(logits.size());
    for (const Candidate& candidate : distribution)
      probabilities[candidate.id] = candidate.probability;
    const bool exact = c.contains("exact_probs");
    const auto& expected = c.at(exact ? "exact_probs" : "probs");
    size_t kept = 0;
    for (size_t id = 0; id < logits.size(); ++id) {
      EXPECT_NEAR(probabilities[id], expected[id].get<double>(), 1e-5) << id;
      kept += expected[id].get<double>() > 1e-306; // smaller ones are denormal doubles, which are cut here
    }
    EXPECT_EQ(distribution.size(), kept);

    params.temperature = 0;
    Sampler greedy(params, 1, 0, given.value("history", std::vector<TokenId>{}));
    for (const TokenId id : given.value("generated", std::vector<TokenId>{}))
      greedy.accept(id);
    const TokenId most_likely = distribution[0].id; // with ties the reference may have cut the lowest
    EXPECT_EQ(greedy.draw(logits, 0).id, exact ? most_likely : c.at("greedy").get<TokenId>());
    ++cases;
  }
  EXPECT_EQ(cases, 244u);
}

TEST(Sampler, CutsAFullVocabularyAsTheDefinitionsDo) {
  for (const float deviation : {0.0f, 1e-6f, 0.01f, 1.0f, 3.0f, 50.0f, 1e6f})
    for (const float temperature : {0.05f, 0.8f, 3.0f})
      for (const int32_t top_k : {0, 1, 40, 20'000})
        for (const float top_p : {0.001f, 0.5f, 0.95f, 1.0f}) {
          SCOPED_TRACE(testing::Message() << deviation << " " << temperature << " " << top_k << " " << top_p);
          SamplerParams params = plain();
          params.temperature = temperature;
          params.top_k = top_k;
          params.top_p = top_p;
          params.min_p = top_k == 40 ? 0.3f : 0;
          auto logits = normal_logits(3000, deviation, 5);
          for (size_t i = 0; i < logits.size(); i += 7)
            logits[i] = logits[(i * 31) % logits.size()]; // ties
          logits[17] = -kInfinity;

          expect_same(Sampler(params, 1, 0, {}).distribution(logits), by_definition(logits, params));
        }
}

TEST(Sampler, DrawsByTheInverseOfTheCumulatedDistribution) {
  const auto logits = normal_logits(5000, 3, 9);
  for (const float top_p : {0.7f, 1.0f})
    for (const float temperature : {0.5f, 1.0f, 4.0f}) {
      SamplerParams params = plain();
      params.top_p = top_p;
      params.temperature = temperature;
      const auto expected = by_definition(logits, params);
      for (uint64_t seed = 0; seed < 200; ++seed) {
        const double u = philox_uniform(seed, 0, 2, DrawPurpose::token);
        double mass = 0;
        size_t place = 0;
        while (place + 1 < expected.size() && (mass += expected[place].probability) <= u)
          ++place;

        const TokenId id = Sampler(params, seed, 2, {}).draw(logits, 0).id;

        // Floats of the expected probabilities blur the borders by about 1e-5.
        const size_t found =
            std::find_if(expected.begin(), expected.end(), [&](const auto& c) { return c.id == id; }) -
            expected.begin();
        EXPECT_LE(found > place ? found - place : place - found, 1u);
        if (std::abs(mass - u) > 1e-4) {
          EXPECT_EQ(found, place);
        }
      }
    }
}

TEST(Sampler, DrawsEachTokenAsOftenAsItIsLikely) {
  const std::vector<float> logits = {1.0f, 0.0f, 2.0f, -1.0f, 0.5f, -kInfinity, 1.5f, -0.5f};
  Sampler sampler(plain(), 12345, 0, {});
  const auto distribution = sampler.distribution(logits);
  constexpr int kDraws = 50'000;
  std::vector<int> counts(logits.size());

  for (int i = 0; i < kDraws; ++i) {
    const TokenId id = sampler.draw(logits, 0).id;
    ++counts[id];
    sampler.accept(id);
  }

  double chi_square = 0;
  for (const auto& [id, probability] : distribution)
    chi_square += std::pow(counts[id] - kDraws * probability, 2) / (kDraws * probability);
  EXPECT_EQ(counts[5], 0);
  EXPECT_LT(chi_square, 22.5); // 6 degrees of freedom, p = 0.001
}

TEST(Sampler, DrawsTheSameAfterItIsRebuiltFromItsIds) {
  SamplerParams params;
  params.repetition_penalty = 1.3f;
  params.frequency_penalty = 0.2f;
  params.presence_penalty = 0.1f;
  params.logit_bias = {{3, 2.0f}, {8, -5.0f}};
  const std::vector<TokenId> prompt = {1, 2, 3, 3};
  const auto logits_at = [](int step) { return normal_logits(64, 2, 100 + step); };
  Sampler first(params, 77, 1, prompt);
  std::vector<TokenId> ids;
  for (int step = 0; step < 40; ++step) {
    Sampler rebuilt(params, 77, 1, prompt);
    for (const TokenId id : ids)
      rebuilt.accept(id);

    const Draw draw = first.draw(logits_at(step), 3), again = rebuilt.draw(logits_at(step), 3);

    ASSERT_EQ(draw.id, again.id);
    ASSERT_EQ(draw.logprob, again.logprob);
    ASSERT_EQ(draw.top, again.top);
    ASSERT_EQ(first.draw(logits_at(step), 0).id, draw.id) << "a draw without accept() changes nothing";
    first.accept(draw.id);
    ids.push_back(draw.id);
  }
}

TEST(Sampler, DrawsOtherTokensForOtherSeedsAndChoices) {
  const auto logits = normal_logits(1000, 1, 3);
  const auto run = [&](uint64_t seed, int32_t choice) {
    Sampler sampler(plain(), seed, choice, {});
    std::vector<TokenId> ids;
    for (int i = 0; i < 20; ++i) {
      ids.push_back(sampler.draw(logits, 0).id);
      sampler.accept(ids.back());
    }
    return ids;
  };

  EXPECT_EQ(run(1, 0), run(1, 0));
  EXPECT_NE(run(1, 0), run(2, 0));
  EXPECT_NE(run(1, 0), run(3, 0));
  EXPECT_NE(run(1, 0), run(1, 1));
}

TEST(Sampler, TakesTheLowestOfEqualLogitsWhenGreedy) {
  SamplerParams params;
  params.temperature = 0;

  EXPECT_EQ(Sampler(params, 1, 0, {}).draw(std::vector{1.0f, 3.0f, 3.0f, 2.0f}, 0).id, 1);
  EXPECT_EQ(Sampler(params, 1, 0, {}).draw(std::vector{-0.0f, 0.0f}, 0).id, 0);
}

TEST(Sampler, TellsLogProbsOfTheModelsOwnDistribution) {
  SamplerParams params;
  params.temperature = 0;
  params.logit_bias = {{0, 100.0f}};
  const std::vector<float> logits = {-2.0f, 1.0f, 3.0f, 3.0f, -kInfinity};
  const double log_sum = std::log(std::exp(-2.0) + std::exp(1.0) + 2 * std::exp(3.0));

  const Draw draw = Sampler(params, 1, 0, {}).draw(logits, 20);

  EXPECT_EQ(draw.id, 0);
  EXPECT_FLOAT_EQ(draw.logprob, static_cast<float>(-2 - log_sum));
  ASSERT_EQ(draw.top.size(), 5u);
  const TokenId order[] = {2, 3, 1, 0, 4};
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(draw.top[i].first, order[i]);
  EXPECT_FLOAT_EQ(draw.top[0].second, static_cast<float>(3 - log_sum));
  EXPECT_EQ(draw.top[4].second, -9999.0f);
}

TEST(Sampler, TellsTheMostLikelyOfAFullVocabulary) {
  const auto logits = normal_logits(kFullVocabulary, 2, 21);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });

  const Draw draw = Sampler(plain(), 1, 0, {}).draw(logits, 20);

  ASSERT_EQ(draw.top.size(), 20u);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_EQ(draw.top[i].first, order[i]);
}

TEST(Sampler, DrawsNothingFromWhatIsNoDistribution) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplerParams params = plain();
    params.temperature = temperature;
    Sampler sampler(params, 1, 0, {});

    EXPECT_FALSE(sampler.draw(std::vector{1.0f, kNan}, 2).finite);
    EXPECT_FALSE(sampler.draw(std::vector{1.0f, kInfinity}, 2).finite);
    EXPECT_FALSE(sampler.draw(std::vector{-kInfinity, -kInfinity}, 2).finite);
    EXPECT_TRUE(sampler.distribution(std::vector{1.0f, kNan}).empty());
    EXPECT_TRUE(sampler.draw(std::vector{1.0f, -kInfinity}, 2).finite);
  }
}

TEST(Sampler, NeverDrawsAMaskedToken) {
  std::vector<float> logits(100, -kInfinity);
  logits[42] = -3;
  SamplerParams params = plain();
  params.temperature = 100;
  for (TokenId id = 0; id < 100; ++id)
    params.logit_bias[id] = id == 42 ? -100.0f : 100.0f;
  Sampler sampler(params, 1, 0, {});

  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sampler.draw(logits, 0).id, 42);
    sampler.accept(42);
  }
}

TEST(Sampler, PenalisesAnIdOnceHoweverOftenItWasSeen) {
  SamplerParams params = plain();
  params.repetition_penalty = 2;
  const std::vector<float> logits = {1.0f, -1.0f, 0.0f};
  const std::vector<TokenId> once = {0, 1}, often = {0, 0, 1, 0, 1, 1};

  const auto distribution = Sampler(params, 1, 0, often).distribution(logits);

  expect_same(distribution, Sampler(params, 1, 0, once).distribution(logits));
  EXPECT_NEAR(distribution[0].probability / distribution[1].probability, std::exp(0.5),
              1e-5); // 1 / 2 against 0
  EXPECT_NEAR(distribution[1].probability / distribution[2].probability, std::exp(2.0),
              1e-5); // 0 against -1 * 2
}

TEST(Sampler, StaysFiniteWithExtremeParameters) {
  const std::vector<std::vector<float>> rows = {normal_logits(1000, 3, 1),
                                                {kLargest, -kLargest, 0.0f, 1.0f},
                                                {-kLargest, -kInfinity},
                                                {1e-45f, -1e-45f, 0.0f}};
  for (const float repetition : {1e-45f, 1e-30f, 1.0f, 1e30f, kLargest})
    for (const float temperature : {0.0f, 1e-45f, 1e-30f, 1e-3f, 1.0f, 100.0f})
      for (const float top_p : {1e-45f, 0.5f, 1.0f})
        for (const float min_p : {0.0f, 1e-45f, 1.0f})
          for (const float penalty : {-100.0f, 0.0f, 100.0f})
            for (const auto& logits : rows) {
              SamplerParams params;
              params.temperature = temperature;
              params.top_p = top_p;
              params.top_k = penalty == 0 ? 2 : std::numeric_limits<int32_t>::max();
              params.min_p = min_p;
              params.repetition_penalty = repetition;
              params.frequency_penalty = params.presence_penalty = penalty;
              params.logit_bias = {{0, 100.0f}, {1, -100.0f}};
              Sampler sampler(params, 3, 0, std::vector<TokenId>{0, 1, 2, -1, 5'000'000});
              sampler.accept(0);
              sampler.accept(1);

              const Draw draw = sampler.draw(logits, 3);
              const auto distribution = sampler.distribution(logits);

              ASSERT_TRUE(draw.finite);
              ASSERT_GE(draw.id, 0);
              ASSERT_LT(static_cast<size_t>(draw.id), logits.size());
              ASSERT_TRUE(std::isfinite(draw.logprob));
              ASSERT_NE(logits[draw.id], -kInfinity);
              ASSERT_FALSE(distribution.empty());
              double mass = 0;
              for (const Candidate& candidate : distribution)
                mass += candidate.probability;
              ASSERT_NEAR(mass, 1, 1e-5);
            }
}

} // namespace
} // namespace millrace
