#include "actors/scheduler/running_batch.hpp"
#include "kernels/attention.hpp"
#include "tests/actors/reader.hpp"

#include <numeric>

namespace millrace::testing {
namespace {

SequenceId sequence_id(int id) { return {stream_id(id), 0, 0}; }

class RunningBatchTest : public ::testing::Test {
protected:
  /// A sequence of so many tokens, 0, 1, 2 …, all but the last of which are in the cache.
  LocalSequence sequence(int id, int32_t length, std::optional<uint64_t> rank = {}) {
    LocalSequence made{.id = sequence_id(id), .blocks = blocks->allocate(length - 1), .rank = rank.value_or(uint64_t(id))};
    made.tokens.resize(size_t(length));
    std::iota(made.tokens.begin(), made.tokens.end(), 0);
    made.prompt_size = length - 1;
    EXPECT_TRUE(made.blocks);
    return made;
  }
  void use_pool(int32_t n) { blocks = std::make_shared<BlockManager>(n); }
  void TearDown() override {
    batch = RunningBatch(true);
    EXPECT_EQ(blocks->used(), 0);
    EXPECT_NO_THROW(blocks->check_integrity());
  }
  static std::vector<int> ids(const std::vector<SequenceId>& sequences) {
    std::vector<int> ids;
    for (const SequenceId& id : sequences)
      ids.push_back(id.request.bytes[0]);
    return ids;
  }

  std::shared_ptr<BlockManager> blocks = std::make_shared<BlockManager>(16);
  RunningBatch batch{true};
};

using Ids = std::vector<int>;

// ---- a step ----

TEST_F(RunningBatchTest, FeedsTheLastTokenOfEach) {
  batch.admit(sequence(1, 5));
  batch.admit(sequence(2, 9));
  const auto step = batch.plan(*blocks);
  EXPECT_EQ(ids(step.sequences), (Ids{1, 2}));
  ASSERT_EQ(step.rows.size(), 2u);
  EXPECT_EQ(step.rows[0].token, 4);
  EXPECT_EQ(step.rows[0].position, 4);
  EXPECT_EQ(step.rows[1].token, 8);
  EXPECT_EQ(step.rows[1].position, 8);
  EXPECT_TRUE(step.rows[0].wants_logits && step.rows[1].wants_logits);
  EXPECT_EQ(step.visible, 5 + 9);
  EXPECT_TRUE(step.preempted.empty());
  batch.apply({{70, 80}}, *blocks);
  const auto next = batch.plan(*blocks);
  EXPECT_EQ(next.rows[0].token, 70);
  EXPECT_EQ(next.rows[0].position, 5);
  EXPECT_EQ(next.rows[1].token, 80);
}

TEST_F(RunningBatchTest, DropsThoseThatHaveEnded) {
  for (int id : {1, 2, 3, 4})
    batch.admit(sequence(id, 5));
  batch.plan(*blocks);
  const auto applied = batch.apply({{7, LocalNextIds::kEnded, LocalNextIds::kFailed, 8}}, *blocks);
  EXPECT_EQ(applied.left, 2u);
  EXPECT_TRUE(applied.yielded.empty());
  EXPECT_EQ(batch.size(), 2u);
  EXPECT_EQ(blocks->tables(), 2);
  EXPECT_EQ(ids(batch.plan(*blocks).sequences), (Ids{1, 4}));
}

TEST_F(RunningBatchTest, WhatComesDuringAStepJoinsTheNext) {
  batch.admit(sequence(1, 5));
  batch.plan(*blocks);
  batch.admit(sequence(2, 5));
  batch.apply({{7}}, *blocks);
  const auto step = batch.plan(*blocks);
  EXPECT_EQ(ids(step.sequences), (Ids{1, 2}));
  EXPECT_EQ(step.rows[1].token, 4) << "not moved on by a step it was not in";
}

TEST_F(RunningBatchTest, AnEmptyOneHasNoRows) {
  EXPECT_TRUE(batch.empty());
  EXPECT_TRUE(batch.plan(*blocks).rows.empty());
  EXPECT_TRUE(batch.plan(*blocks).rows.empty()) << "no apply() in between";
}

// ---- blocks ----

TEST_F(RunningBatchTest, TakesABlockWhenARowNeedsIt) {
  batch.admit(sequence(1, 17)); // 16 of them are in the first block
  EXPECT_EQ(blocks->used(), 1);
  const auto step = batch.plan(*blocks);
  EXPECT_EQ(blocks->used(), 2);
  EXPECT_EQ(step.rows[0].blocks.size(), 2u);
  for (int i = 0; i < 15; ++i) {
    batch.apply({{1}}, *blocks);
    batch.plan(*blocks);
    ASSERT_EQ(blocks->used(), 2);
  }
  batch.apply({{1}}, *blocks);
  batch.plan(*blocks);
  EXPECT_EQ(blocks->used(), 3);
}

TEST_F(RunningBatchTest, TheHighestRankGivesWayWhereNoBlockIsLeft) {
  use_pool(3);
  batch.admit(sequence(2, 17, 20));
  batch.admit(sequence(3, 5, 30)); // in the middle, and of the highest rank
  batch.admit(sequence(1, 5, 10));
  const auto step = batch.plan(*blocks);
  EXPECT_EQ(ids(step.preempted), (Ids{3}));
  EXPECT_EQ(ids(step.sequences), (Ids{2, 1})) << "the order of rows is that of admission";
  EXPECT_EQ(batch.size(), 2u);
  EXPECT_EQ(blocks->tables(), 2);
}

TEST_F(RunningBatchTest, OneGivesItsOwnBlocksBackIfNobodyIsOfAHigherRank) {
  use_pool(2);
  batch.admit(sequence(1, 5));
  batch.admit(sequence(2, 17));
  const auto step = batch.plan(*blocks);
  EXPECT_EQ(ids(step.preempted), (Ids{2}));
  EXPECT_EQ(ids(step.sequences), (Ids{1}));
}

TEST_F(RunningBatchTest, LowRanksGrowFirst) {
  use_pool(4);
  batch.admit(sequence(3, 17));
  batch.admit(sequence(2, 17));
  batch.admit(sequence(1, 17));
  const auto step = batch.plan(*blocks); // one block is free, and all three need one
  EXPECT_EQ(ids(step.preempted), (Ids{3}));
  EXPECT_EQ(ids(step.sequences), (Ids{2, 1}));
}

TEST_F(RunningBatchTest, AsManyGiveWayAsItTakes) {
  use_pool(4);
  const auto others = blocks->allocate(16);
  const std::vector<TokenId> prompt(16, 7);
  auto shared = sequence(2, 17), sharing = sequence(3, 17);
  blocks->publish(*shared.blocks, prompt);
  blocks->publish(*sharing.blocks, prompt); // gives its own block back
  batch.admit(std::move(shared));
  batch.admit(std::move(sharing));
  batch.admit(sequence(1, 17));
  const auto rest = blocks->allocate(16);
  const auto step = batch.plan(*blocks); // to drop one of those that share a block frees nothing
  EXPECT_EQ(ids(step.preempted), (Ids{3, 2}));
  EXPECT_EQ(ids(step.sequences), (Ids{1}));
}

TEST_F(RunningBatchTest, AllGiveWayWhereOthersHoldTheBlocks) {
  use_pool(2);
  const auto prefill = blocks->allocate(16);
  batch.admit(sequence(1, 17));
  const auto step = batch.plan(*blocks);
  EXPECT_EQ(ids(step.preempted), (Ids{1}));
  EXPECT_TRUE(step.rows.empty());
  EXPECT_TRUE(batch.empty());
  batch.admit(sequence(1, 5));
  EXPECT_EQ(batch.plan(*blocks).rows.size(), 1u) << "no apply() in between";
}

TEST_F(RunningBatchTest, EvictsWhatIsCachedBeforeAnybodyGivesWay) {
  use_pool(3);
  {
    const auto ended = blocks->allocate(16);
    blocks->publish(*ended, std::vector<TokenId>(16, 3));
  }
  batch.admit(sequence(1, 17));
  batch.admit(sequence(2, 5));
  EXPECT_EQ(blocks->cached(), 1);
  EXPECT_TRUE(batch.plan(*blocks).preempted.empty());
  EXPECT_EQ(blocks->cached(), 0);
}

// ---- cancelling ----

TEST_F(RunningBatchTest, FreesTheBlocksOfACancelledOneAtOnce) {
  batch.admit(sequence(1, 5));
  batch.admit(sequence(2, 5));
  EXPECT_TRUE(batch.cancel(sequence_id(1)));
  EXPECT_EQ(blocks->tables(), 1);
  EXPECT_FALSE(batch.cancel(sequence_id(1)));
  EXPECT_FALSE(batch.cancel(sequence_id(3)));
  EXPECT_EQ(ids(batch.plan(*blocks).sequences), (Ids{2}));
}

TEST_F(RunningBatchTest, OneThatIsCancelledInAStepKeepsItsRowAlone) {
  for (int id : {1, 2, 3})
    batch.admit(sequence(id, 5));
  batch.plan(*blocks);
  batch.admit(sequence(4, 5));
  EXPECT_TRUE(batch.cancel(sequence_id(2)));
  EXPECT_TRUE(batch.cancel(sequence_id(4)));
  EXPECT_FALSE(batch.cancel(sequence_id(2)));
  EXPECT_EQ(blocks->tables(), 2);
  const auto applied = batch.apply({{70, 71, 72}}, *blocks);
  EXPECT_EQ(applied.left, 0u) << "those that freed blocks by it; cancel() has told of this one";
  const auto step = batch.plan(*blocks);
  EXPECT_EQ(ids(step.sequences), (Ids{1, 3}));
  EXPECT_EQ(step.rows[1].token, 72) << "everyone has its own token";
}

TEST_F(RunningBatchTest, AStepOfCancelledOnesAloneComesToItsEnd) {
  batch.admit(sequence(1, 5));
  batch.plan(*blocks);
  batch.cancel(sequence_id(1));
  EXPECT_FALSE(batch.empty()) << "its row is on the way";
  batch.apply({{LocalNextIds::kEnded}}, *blocks);
  EXPECT_TRUE(batch.empty());
}

// ---- yielding ----

TEST_F(RunningBatchTest, YieldsAtOnceBetweenSteps) {
  batch.admit(sequence(1, 5));
  batch.admit(sequence(2, 5));
  EXPECT_TRUE(batch.yield(sequence_id(1)));
  EXPECT_EQ(blocks->tables(), 1);
  EXPECT_EQ(ids(batch.plan(*blocks).sequences), (Ids{2}));
}

TEST_F(RunningBatchTest, YieldsAfterTheStepItIsIn) {
  batch.admit(sequence(1, 5));
  batch.admit(sequence(2, 5));
  batch.plan(*blocks);
  EXPECT_FALSE(batch.yield(sequence_id(1)));
  EXPECT_EQ(blocks->tables(), 2);
  const auto applied = batch.apply({{7, 8}}, *blocks);
  EXPECT_EQ(ids(applied.yielded), (Ids{1}));
  EXPECT_EQ(applied.left, 1u);
  EXPECT_EQ(ids(batch.plan(*blocks).sequences), (Ids{2}));
}

TEST_F(RunningBatchTest, OneThatEndsDoesNotYield) {
  batch.admit(sequence(1, 5));
  batch.admit(sequence(2, 5));
  batch.plan(*blocks);
  batch.yield(sequence_id(1));
  batch.yield(sequence_id(2));
  const auto applied = batch.apply({{LocalNextIds::kEnded, LocalNextIds::kFailed}}, *blocks);
  EXPECT_TRUE(applied.yielded.empty());
  EXPECT_EQ(applied.left, 2u);
}

TEST_F(RunningBatchTest, OneThatIsCancelledDoesNotYield) {
  batch.admit(sequence(1, 5));
  batch.plan(*blocks);
  batch.yield(sequence_id(1));
  EXPECT_TRUE(batch.cancel(sequence_id(1)));
  EXPECT_FALSE(batch.yield(sequence_id(1)));
  const auto applied = batch.apply({{7}}, *blocks);
  EXPECT_TRUE(applied.yielded.empty());
  EXPECT_EQ(applied.left, 0u);
}

TEST_F(RunningBatchTest, OneThatIsToYieldBeforeItComesDoesSoAfterItsFirstStep) {
  batch.admit(sequence(1, 5));
  EXPECT_FALSE(batch.yield(sequence_id(2)));
  batch.admit(sequence(2, 5));
  batch.plan(*blocks);
  const auto applied = batch.apply({{7, 8}}, *blocks);
  EXPECT_EQ(ids(applied.yielded), (Ids{2}));
  auto later = sequence(2, 5);
  later.id.epoch = 1;
  batch.admit(std::move(later));
  batch.plan(*blocks);
  EXPECT_TRUE(batch.apply({{7, 8}}, *blocks).yielded.empty()) << "another epoch is another sequence";
}

// ---- publishing ----

class Publishing : public RunningBatchTest {
protected:
  /// Positions in the cache after so many steps of a sequence, whose tokens end by this id.
  int32_t cached_after(int32_t length, int steps, bool share_output, TokenId last = 9) {
    batch = RunningBatch(share_output);
    LocalSequence made = sequence(1, length);
    made.prompt_size = length - 1;
    std::vector<TokenId> tokens = made.tokens;
    batch.admit(std::move(made));
    for (int i = 0; i < steps; ++i) {
      batch.plan(*blocks);
      const TokenId id = i + 1 < steps ? 9 : last;
      batch.apply({{id}}, *blocks);
      tokens.push_back(id);
    }
    return blocks->lookup(tokens, "");
  }
};

TEST_F(Publishing, TellsABlockOnceItIsFull) {
  EXPECT_EQ(cached_after(16, 1, true), 16) << "the row of position 15 was fed";
  use_pool(16);
  EXPECT_EQ(cached_after(15, 1, true), 0);
  EXPECT_EQ(cached_after(15, 2, true), 16);
  use_pool(16);
  EXPECT_EQ(cached_after(15, 40, true), 48);
}

TEST_F(Publishing, TellsNothingWhereOutputIsNotToBeShared) { EXPECT_EQ(cached_after(15, 40, false), 0); }

TEST_F(Publishing, TellsTheLastBlockOfASequenceThatEnds) {
  EXPECT_EQ(cached_after(16, 1, true, LocalNextIds::kEnded), 16);
  EXPECT_EQ(blocks->cached(), 1);
}

TEST_F(Publishing, TellsNothingWhereTheLogitsWereNoNumbers) {
  EXPECT_EQ(cached_after(16, 1, true, LocalNextIds::kFailed), 0);
  EXPECT_EQ(blocks->cached(), 0);
}

} // namespace
} // namespace millrace::testing
