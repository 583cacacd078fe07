#include "actors/choice_sampler.hpp"
#include "tests/actors/actor_test.hpp"

namespace millrace::testing {
namespace {

class ChoiceSamplerTest : public ::testing::Test {
protected:
  std::shared_ptr<const Tokenizer> tokenizer = tiny_tokenizer();

  Sequence sequence(int32_t max_tokens = 40) {
    Sequence sequence;
    sequence.id = {stream_id(1), 0, 0};
    sequence.prompt_ids = {1, 2, 3};
    sequence.max_tokens = max_tokens;
    sequence.sampling.seed = 9;
    sequence.sampling.temperature = 1;
    sequence.sampling.repetition_penalty = 1.3f;
    sequence.sampling.frequency_penalty = 0.4f;
    sequence.ignore_eos = true;
    sequence.logprobs = 2;
    return sequence;
  }

  static std::vector<float> logits(int64_t step) {
    std::vector<float> logits(512);
    std::mt19937 random{uint32_t(step)};
    for (float& logit : logits)
      logit = float(random() % 4096) / 512;
    return logits;
  }

  /// Draws from the index on until the end.
  std::vector<Sampled> run(const Sequence& sequence) {
    ChoiceSampler sampler(sequence, *tokenizer);
    std::vector<Sampled> all;
    for (auto step = int64_t(sequence.emitted_ids.size());; ++step) {
      auto outcome = sampler.draw(logits(step));
      all.push_back(outcome.sampled);
      if (outcome.next == LocalNextIds::kEnded)
        return all;
    }
  }

  static Output joined(const std::vector<Sampled>& all) {
    Output output;
    for (const Sampled& sampled : all) {
      for (const SampledToken& token : sampled.tokens) {
        output.ids.push_back(token.id);
        output.logprobs.push_back(token.logprob);
        output.text += token.text;
      }
      output.text += sampled.text;
    }
    output.reason = all.back().reason;
    return output;
  }
};

TEST_F(ChoiceSamplerTest, GoesOnFromAnyTokenAsIfNothingHadHappened) {
  Sequence whole = sequence();
  whole.stop = {"never in this text", "ee"};
  const auto all = run(whole);
  const Output expected = joined(all);
  ASSERT_GT(expected.ids.size(), 5u);

  for (size_t told = 0; told < expected.ids.size(); ++told) {
    Sequence rest = whole;
    rest.emitted_ids.assign(expected.ids.begin(), expected.ids.begin() + ptrdiff_t(told));
    const Output output = joined(run(rest));

    EXPECT_TRUE(std::ranges::equal(output.ids, std::span(expected.ids).subspan(told))) << told;
    EXPECT_TRUE(std::ranges::equal(output.logprobs, std::span(expected.logprobs).subspan(told))) << told;
    EXPECT_TRUE(expected.text.ends_with(output.text)) << told;
    EXPECT_EQ(output.reason, expected.reason);
  }
}

TEST_F(ChoiceSamplerTest, TellsTheTokensInOrderWithTheirBytes) {
  const auto all = run(sequence(12));

  int64_t index = 0;
  for (const Sampled& sampled : all)
    for (const SampledToken& token : sampled.tokens) {
      EXPECT_EQ(token.index, index++);
      EXPECT_EQ(token.bytes.data, tokenizer->bytes(token.id));
      EXPECT_EQ(token.top.size(), 2u);
      EXPECT_EQ(token.top[0].bytes.data, tokenizer->bytes(token.top[0].id));
    }
  EXPECT_EQ(index, 12);
  EXPECT_EQ(all.back().reason, "length");
}

TEST_F(ChoiceSamplerTest, HoldsTokensBackThatMayBelongToAStopString) {
  Sequence greedy = sequence(10);
  greedy.sampling = {.temperature = 0, .logit_bias = {}, .seed = {}};
  const auto ids = tokenizer->encode("the end", {.add_bos = false});
  greedy.stop = {tokenizer->decode(ids, false) + "!"};
  ChoiceSampler sampler(greedy, *tokenizer);
  const auto draw = [&](TokenId id) {
    std::vector<float> logits(512);
    logits[size_t(id)] = 9;
    return sampler.draw(logits).sampled;
  };

  for (TokenId id : ids)
    EXPECT_TRUE(draw(id).tokens.empty());
  const auto other = tokenizer->encode("?", {.add_bos = false});
  EXPECT_EQ(draw(other.back()).tokens.size(), ids.size() + 1);
}

TEST_F(ChoiceSamplerTest, EndsWithAnErrorAtLogitsThatAreNoNumbers) {
  ChoiceSampler sampler(sequence(), *tokenizer);

  const auto outcome = sampler.draw(std::vector<float>(512, std::numeric_limits<float>::quiet_NaN()));

  EXPECT_EQ(outcome.next, LocalNextIds::kFailed);
  EXPECT_EQ(outcome.sampled.reason, "error");
  EXPECT_EQ(outcome.sampled.error, "non_finite_logits");
}

} // namespace
} // namespace millrace::testing
