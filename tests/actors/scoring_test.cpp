// Log-probs of prompts: each position once, in order, and the numbers that the model itself gives.

#include "actors/prompt_scorer.hpp"
#include "model/logprobs.hpp"
#include "tests/actors/graph_test.hpp"

namespace millrace::testing {
namespace {

class ScoringTest : public GraphTest {
protected:
  static Generate scoring(int id, size_t prompt_ids, int32_t top_n = 2, int32_t max_tokens = 0) {
    Generate generate = request_of(id, prompt_ids, max_tokens);
    generate.prompt_logprobs = top_n;
    return generate;
  }

  /// As the definition says: a pass over the whole prompt, a row of logits for each token.
  static std::vector<PromptToken> by_hand(const Generate& generate, const Tokenizer& tokenizer) {
    const std::vector<TokenId>& ids = *generate.prompt_ids;
    FakeDevice device;
    const auto vocab = size_t(device.config().vocab_size);
    const auto table = device.blocks().allocate(int64_t(ids.size()));
    std::vector<Row> rows;
    for (size_t i = 0; i < ids.size(); ++i)
      rows.push_back({ids[i], int32_t(i), table->blocks(), true});
    std::vector<float> logits(rows.size() * vocab);
    device.forward(rows, logits);

    std::vector<PromptToken> tokens;
    for (size_t i = 0; i < ids.size(); ++i) {
      PromptToken& token =
          tokens.emplace_back(PromptToken{.id = ids[i], .bytes = {}, .logprob = {}, .top = {}});
      token.bytes.data = tokenizer.bytes(ids[i]);
      if (i == 0)
        continue;
      const Logprobs row(std::span<const float>(logits).subspan((i - 1) * vocab, vocab));
      token.logprob = row.of(ids[i]);
      for (const auto& [id, logprob] : row.most_likely(size_t(*generate.prompt_logprobs)))
        token.top.push_back({id, {std::string(tokenizer.bytes(id))}, logprob});
    }
    return tokens;
  }

  static void expect_same(const std::vector<PromptToken>& actual, const std::vector<PromptToken>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i].id, expected[i].id) << i;
      EXPECT_EQ(actual[i].bytes, expected[i].bytes) << i;
      EXPECT_EQ(actual[i].logprob, expected[i].logprob) << i;
      ASSERT_EQ(actual[i].top.size(), expected[i].top.size()) << i;
      for (size_t k = 0; k < actual[i].top.size(); ++k) {
        EXPECT_EQ(actual[i].top[k].id, expected[i].top[k].id) << i;
        EXPECT_EQ(actual[i].top[k].logprob, expected[i].top[k].logprob) << i;
      }
    }
  }

  /// Requests that score, some of which also generate, among others that don't.
  std::vector<Generate> scoring_mixture() {
    std::vector<Generate> requests = mixture();
    for (int id = 20; id < 26; ++id)
      requests.push_back(scoring(id, 1 + size_t(id - 20) * 17, id % 3, id % 2 ? 6 : 0));
    requests.push_back(scoring(26, 40, 1, 4));
    requests.back().n = 3;
    return requests;
  }
  void expect_scores(const std::vector<Generate>& requests) {
    for (const Generate& generate : requests) {
      if (generate.prompt_logprobs)
        expect_same(reader.scored[generate.request], by_hand(generate, *tokenizer));
      else
        EXPECT_FALSE(reader.scored.contains(generate.request));
    }
  }
};

TEST_F(ScoringTest, ReadsAPromptAndDrawsNothing) {
  start();

  submit(scoring(1, 40));
  run();

  EXPECT_TRUE(reader.output(1).ids.empty());
  EXPECT_EQ(reader.output(1).reason, "length");
  EXPECT_EQ(reader.done[stream_id(1)].prompt_tokens, 40);
  EXPECT_EQ(reader.done[stream_id(1)].generated_tokens, 0);
  expect_same(reader.scored[stream_id(1)], by_hand(scoring(1, 40), *tokenizer));
  expect_idle();
}

TEST_F(ScoringTest, ReadsAPromptWithoutScoringIt) {
  start();

  submit(request_of(1, 40, 0));
  run();

  EXPECT_EQ(reader.output(1).reason, "length");
  EXPECT_EQ(reader.progress, 3);
  EXPECT_TRUE(reader.scored.empty());
  expect_idle();
}

TEST_F(ScoringTest, ASingleTokenHasNoLogprob) {
  start();

  submit(scoring(1, 1));
  run();

  ASSERT_EQ(reader.scored[stream_id(1)].size(), 1u);
  EXPECT_FALSE(reader.scored[stream_id(1)][0].logprob);
  EXPECT_EQ(reader.output(1).reason, "length");
}

TEST_F(ScoringTest, ChangesNoToken) {
  std::vector<Generate> requests = scoring_mixture(), plain = requests;
  for (Generate& generate : plain)
    generate.prompt_logprobs.reset();
  const auto expected = alone(plain);
  for (const int32_t chunk : {1, 5, 16, 128}) {
    options = {{.max_batch_size = 16, .prefill_chunk = chunk}};
    start();

    for (const Generate& generate : requests)
      submit(generate);
    run();

    EXPECT_EQ(reader.outputs, expected) << chunk;
    expect_scores(requests);
    expect_idle();
    stop();
  }
}

TEST_F(ScoringTest, TellsEachPositionOnceAfterADeathInAnyPass) {
  const auto requests = scoring_mixture();
  const auto expected = alone(requests);
  options.prefill_chunk = 24;
  for (int fatal = 0;; ++fatal) {
    start();
    device->before_pass = [&](int pass, auto) {
      if (pass == fatal)
        throw std::runtime_error("injected fault");
    };

    for (const Generate& generate : requests)
      submit(generate);
    run();

    EXPECT_EQ(reader.outputs, expected) << "death in pass " << fatal;
    expect_scores(requests);
    expect_idle();
    const bool past_the_end = board->read().restarts == 0;
    stop();
    if (past_the_end) {
      EXPECT_GT(fatal, 20);
      break;
    }
  }
}

TEST_F(ScoringTest, LogitsThatAreNoNumbersEndTheirRequestAlone) {
  start();
  device->poison = [](auto history) { return history.front() == 11 && history.size() == 7; };

  submit(scoring(1, 12)); // begins with 11
  submit(scoring(2, 12));
  submit(scoring(8, 5, 0, 3));
  run();

  EXPECT_EQ(reader.output(1).error, "non_finite_logits");
  EXPECT_TRUE(reader.scored[stream_id(1)].empty());
  EXPECT_EQ(reader.output(2).reason, "length");
  EXPECT_EQ(reader.output(8).ids.size(), 3u);
  expect_idle();
}

TEST_F(ScoringTest, ACancellationEndsItBetweenTwoPieces) {
  options.prefill_chunk = 4;
  for (size_t messages = 0;; ++messages) {
    start();
    submit(scoring(1, 30, 1, 3));
    submit(scoring(2, 30));
    run(messages);
    const bool all_done = reader.done.size() == 2;

    cancel(1);
    cancel(2);
    run();

    EXPECT_EQ(reader.done.size(), 2u);
    expect_idle();
    stop();
    if (all_done)
      break;
  }
}

// ---- the bounds of a pass ----

Sequence scored_sequence(int id, size_t length, int32_t max_tokens = 1) {
  Sequence sequence;
  sequence.id = {stream_id(id), 0, 0};
  sequence.prompt_ids.assign(length, 5);
  sequence.max_tokens = max_tokens;
  sequence.prompt_logprobs = 0;
  return sequence;
}

TEST(PromptQueue, NoPassWantsMoreScoredRowsThanItMay) {
  const auto blocks = std::make_shared<BlockManager>(100);
  PromptQueue queue(5, true);
  queue.push(scored_sequence(1, 12));
  queue.push(scored_sequence(2, 3));
  Sequence plain = scored_sequence(3, 6);
  plain.prompt_logprobs.reset();
  queue.push(plain);
  queue.push(scored_sequence(4, 9, 0));

  std::map<StreamId, int32_t> scored;
  while (!queue.idle()) {
    const PromptQueue::Pass pass = queue.plan(*blocks, 16);
    ASSERT_FALSE(pass.rows.empty());
    EXPECT_LE(pass.wanted, 5u + 2); // prompts that end have a row each
    EXPECT_EQ(pass.wanted, size_t(std::ranges::count_if(pass.rows, &Row::wants_logits)));
    for (const auto& piece : pass.pieces) {
      EXPECT_EQ(piece.begin, scored[piece.sequence->id.request]);
      scored[piece.sequence->id.request] = piece.end;
    }
    const auto read = queue.advance();
    LocalNextIds next;
    next.ids.assign(read.complete.size(), LocalNextIds::kEnded);
    queue.hand_on(next, *blocks);
  }

  EXPECT_EQ(scored, (std::map<StreamId, int32_t>{{stream_id(1), 12}, {stream_id(2), 3}, {stream_id(4), 9}}));
}

TEST(PromptQueue, GoesOnScoringWhereAnEarlierOwnerStopped) {
  const auto blocks = std::make_shared<BlockManager>(100);
  PromptQueue queue(8, true);
  Sequence sequence = scored_sequence(1, 20);
  sequence.scored = 13;
  queue.push(sequence);

  std::vector<std::pair<int32_t, int32_t>> pieces;
  for (int pass = 0; pass < 3; ++pass) {
    for (const auto& piece : queue.plan(*blocks, 8).pieces)
      pieces.emplace_back(piece.begin, piece.end);
    queue.advance();
  }

  EXPECT_EQ(pieces, (std::vector<std::pair<int32_t, int32_t>>{{13, 17}, {17, 20}}));
}

TEST(PromptScorer, BoundsTheLogitsOfAPass) {
  EXPECT_EQ(scored_rows_of_a_pass(512), 128);
  EXPECT_EQ(scored_rows_of_a_pass(151'936), 110);
  EXPECT_EQ(scored_rows_of_a_pass(1 << 30), 1);
}

} // namespace
} // namespace millrace::testing
