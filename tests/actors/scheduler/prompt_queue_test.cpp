#include "actors/scheduler/prompt_queue.hpp"
#include "kernels/attention.hpp"
#include "tests/actors/reader.hpp"

#include <map>
#include <numeric>

namespace millrace::testing {
namespace {

using Ids = std::vector<int>;
using Tokens = std::vector<TokenId>;

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// first, first + 1, …
Tokens count(TokenId first, size_t n) {
  Tokens tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

SequenceId sequence_id(int id) { return {stream_id(id), 0, 0}; }
int number(const SequenceId& id) { return id.request.bytes[0] + 256 * id.request.bytes[1]; }

class PromptQueueTest : public ::testing::Test {
protected:
  Sequence sequence(int id, const Tokens& prompt, const Tokens& emitted = {}) {
    Sequence made;
    made.id = sequence_id(id);
    made.prompt_ids = prompt;
    made.emitted_ids = emitted;
    made.max_tokens = 100;
    made.rank = uint64_t(id);
    return made;
  }
  /// A prompt that begins like no other.
  void push(int id, size_t length) { queue.push(sequence(id, count(1000 * id, length))); }
  void use_pool(int32_t n) { blocks = std::make_shared<BlockManager>(n); }

  PromptQueue::Pass plan(int32_t budget = 1000) {
    auto pass = queue.plan(*blocks, budget);
    EXPECT_LE(pass.rows.size(), size_t(budget));
    for (const Row& row : pass.rows)
      EXPECT_LE(BlockManager::blocks_for(row.position + 1), int32_t(row.blocks.size()));
    EXPECT_EQ(pass.wanted, size_t(std::ranges::count_if(pass.rows, &Row::wants_logits)));
    return pass;
  }
  /// The pass is run and each complete prompt has its first token, 7.
  std::vector<LocalSequence> finish_pass() {
    complete.clear();
    const auto read = queue.advance();
    for (const SequenceId& id : read.complete)
      complete.push_back(number(id));
    return queue.hand_on({.ids = Tokens(read.complete.size(), 7)}, *blocks);
  }
  /// Plans and runs a pass; how many rows each prompt had.
  std::map<int, int> read(int32_t budget = 1000) {
    std::map<int, int> rows;
    for (const Row& row : plan(budget).rows)
      ++rows[row.token / 1000];
    running = finish_pass();
    return rows;
  }
  static Ids started(const PromptQueue::Pass& pass) {
    Ids ids;
    for (const auto& start : pass.started)
      ids.push_back(number(start.sequence->id));
    return ids;
  }

  void TearDown() override {
    running.clear();
    queue = PromptQueue(100, true);
    EXPECT_EQ(blocks->used(), 0);
    EXPECT_NO_THROW(blocks->check_integrity());
  }

  std::shared_ptr<BlockManager> blocks = std::make_shared<BlockManager>(100);
  PromptQueue queue{100, true};
  std::vector<LocalSequence> running; // handed on by the last pass
  Ids complete;                       // by the last pass
};

using Rows = std::map<int, int>;

// ---- one prompt ----

TEST_F(PromptQueueTest, IsIdleUntilSomethingComes) {
  EXPECT_TRUE(queue.idle());
  EXPECT_TRUE(plan().rows.empty());
  push(1, 5);
  EXPECT_FALSE(queue.idle());
  read();
  EXPECT_TRUE(queue.idle());
}

TEST_F(PromptQueueTest, ReadsAPromptInChunks) {
  push(1, 25);
  for (const auto& [begin, end] : {std::pair(0, 10), {10, 20}, {20, 25}}) {
    const auto pass = plan(10);
    EXPECT_EQ(pass.started.size(), begin == 0 ? 1u : 0u);
    ASSERT_EQ(pass.rows.size(), size_t(end - begin));
    for (int32_t position = begin; position < end; ++position) {
      const Row& row = pass.rows[size_t(position - begin)];
      EXPECT_EQ(row.position, position);
      EXPECT_EQ(row.token, 1000 + position);
      EXPECT_EQ(row.wants_logits, position == 24);
      EXPECT_EQ(row.blocks.size(), 2u) << "all of its blocks from the start";
    }
    const auto read = queue.advance();
    ASSERT_EQ(read.progress.size(), 1u);
    EXPECT_EQ(read.progress[0].processed, end);
    EXPECT_EQ(read.progress[0].total, 25);
    EXPECT_EQ(read.complete.size(), end == 25 ? 1u : 0u);
    running = queue.hand_on({.ids = Tokens(read.complete.size(), 7)}, *blocks);
  }
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].id, sequence_id(1));
  EXPECT_EQ(running[0].tokens, count(1000, 25) + Tokens{7});
  EXPECT_EQ(running[0].prompt_size, 25);
  EXPECT_EQ(running[0].rank, 1u);
  EXPECT_EQ(running[0].blocks->blocks().size(), 2u);
}

TEST_F(PromptQueueTest, ReadsWhatWasEmittedBeforeAsWell) {
  queue.push(sequence(1, count(1000, 4), {8, 9}));
  const auto pass = plan();
  ASSERT_EQ(pass.rows.size(), 6u);
  EXPECT_EQ(pass.rows[5].token, 9);
  EXPECT_TRUE(pass.rows[5].wants_logits);
  EXPECT_FALSE(pass.rows[3].wants_logits);
  const auto read = queue.advance();
  EXPECT_EQ(read.progress[0].processed, 4) << "of the prompt";
  EXPECT_EQ(read.progress[0].total, 4);
  running = queue.hand_on({.ids = {7}}, *blocks);
  EXPECT_EQ(running[0].tokens, (count(1000, 4) + Tokens{8, 9, 7}));
  EXPECT_EQ(running[0].prompt_size, 4);
}

TEST_F(PromptQueueTest, APromptThatIsOnlyReadWantsNoLogitsAndEnds) {
  Sequence only_read = sequence(1, count(0, 20));
  only_read.max_tokens = 0;
  queue.push(only_read);
  EXPECT_EQ(plan().wanted, 0u);
  const auto read = queue.advance();
  EXPECT_TRUE(read.complete.empty());
  EXPECT_EQ(read.ended, (std::vector<SequenceId>{sequence_id(1)}));
  EXPECT_EQ(blocks->tables(), 0);
  EXPECT_EQ(blocks->cached(), 0) << "nobody has looked at its numbers";
}

// ---- the order of a pass ----

TEST_F(PromptQueueTest, TheShortestPassLongOnes) {
  push(1, 100);
  push(2, 60);
  push(3, 10);
  EXPECT_EQ(read(40), (Rows{{1, 10}, {2, 20}, {3, 10}})) << "a quarter for the oldest, the rest for the shortest first";
  EXPECT_EQ(complete, (Ids{3}));
  push(4, 30);
  EXPECT_EQ(read(40), (Rows{{1, 10}, {4, 30}}));
  EXPECT_EQ(complete, (Ids{4}));
  EXPECT_EQ(read(40), (Rows{{1, 10}, {2, 30}}));
  EXPECT_EQ(read(40), (Rows{{1, 30}, {2, 10}})) << "what the others leave";
  EXPECT_EQ(complete, (Ids{2}));
  EXPECT_EQ(read(40), (Rows{{1, 40}}));
  EXPECT_EQ(complete, (Ids{1}));
}

TEST_F(PromptQueueTest, OfEqualOnesTheOlderIsReadFirst) {
  for (int id : {1, 2, 3})
    push(id, 30);
  EXPECT_EQ(read(40), (Rows{{1, 10}, {2, 30}}));
}

TEST_F(PromptQueueTest, TheOldestComesToItsEndBesideAnEndlessStreamOfShortOnes) {
  push(1, 100);
  int passes = 0;
  for (int id = 2; std::ranges::find(complete, 1) == complete.end(); id += 4, ++passes) {
    for (int other = id; other < id + 4; ++other)
      push(other, 5);
    read(16);
    ASSERT_LT(passes, 25);
  }
  EXPECT_EQ(passes, 25) << "four rows in each";
}

TEST_F(PromptQueueTest, TheSmallestBudgetReadsOnToo) {
  push(1, 3);
  push(2, 3);
  Ids order;
  for (int pass = 0; pass < 6; ++pass) {
    EXPECT_EQ(read(1).size(), 1u);
    order.insert(order.end(), complete.begin(), complete.end());
  }
  EXPECT_EQ(order, (Ids{1, 2}));
}

TEST_F(PromptQueueTest, RowsOfASequenceStandTogetherInAscendingOrder) {
  for (int id = 1; id <= 5; ++id)
    push(id, size_t(10 * id));
  while (!queue.idle()) {
    const auto pass = plan(17);
    std::map<int, int32_t> last;
    int before = 0;
    for (const Row& row : pass.rows) {
      const int id = row.token / 1000;
      EXPECT_TRUE(id == before || !last.contains(id));
      EXPECT_TRUE(!last.contains(id) || row.position == last[id] + 1);
      last[id] = row.position;
      before = id;
    }
    running = finish_pass();
  }
}

TEST_F(PromptQueueTest, LogitsOfCompleteOnesAreNamedInTheOrderOfTheirRows) {
  for (int id : {1, 2, 3})
    push(id, size_t(id));
  plan();
  const auto read = queue.advance();
  EXPECT_EQ(read.complete.size(), 3u);
  EXPECT_EQ(read.logits_rows, (std::vector<size_t>{0, 1, 2}));
  running = queue.hand_on({.ids = {70, 80, 90}}, *blocks);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(running[i].id, read.complete[i]);
    EXPECT_EQ(running[i].tokens.back(), TokenId(70 + 10 * i));
  }
}

// ---- blocks ----

TEST_F(PromptQueueTest, StartsInTheOrderOfArrivalWhileThereAreBlocks) {
  use_pool(8);
  for (int id : {1, 2, 3, 4})
    push(id, 32); // two blocks each
  EXPECT_EQ(started(plan()), (Ids{1, 2, 3})) << "the fourth would leave them no block to spare";
  finish_pass().clear();
  EXPECT_EQ(started(plan()), (Ids{4}));
  finish_pass();
}

TEST_F(PromptQueueTest, NobodyTakesTheBlocksThatOneBeforeItWaitsFor) {
  use_pool(4);
  const auto other = blocks->allocate(32);
  push(1, 33);
  push(2, 1);
  EXPECT_TRUE(plan().rows.empty());
  EXPECT_TRUE(started(plan()).empty()) << "no advance() in between";
}

TEST_F(PromptQueueTest, LeavesEachRunningTableABlock) {
  use_pool(5);
  auto other = blocks->allocate(32);
  auto another = blocks->allocate(16);
  push(1, 16);
  EXPECT_TRUE(started(plan()).empty()) << "two are left, and both may be needed";
  another.reset();
  EXPECT_EQ(started(plan()), (Ids{1}));
}

TEST_F(PromptQueueTest, OneThatFillsThePoolStartsAlone) {
  use_pool(4);
  push(1, 64);
  EXPECT_EQ(started(plan()), (Ids{1}));
}

TEST_F(PromptQueueTest, TakesABlockForTheLastRowOfAnEmittedOne) {
  use_pool(2);
  queue.push(sequence(1, count(0, 16), {5}));
  EXPECT_EQ(plan().rows.back().blocks.size(), 2u);
}

// ---- the cache ----

TEST_F(PromptQueueTest, SkipsWhatTheCacheHolds) {
  push(1, 40);
  read();
  queue.push(sequence(2, count(1000, 32) + count(500, 8)));
  const auto pass = plan();
  ASSERT_EQ(pass.started.size(), 1u);
  EXPECT_EQ(pass.started[0].cached, 32);
  EXPECT_FALSE(pass.started[0].copy);
  ASSERT_EQ(pass.rows.size(), 8u);
  EXPECT_EQ(pass.rows[0].position, 32);
  EXPECT_EQ(pass.rows[0].token, 500);
  EXPECT_EQ(pass.rows[0].blocks[0], running[0].blocks->blocks()[0]);
  EXPECT_EQ(queue.advance().progress[0].processed, 40);
  queue.hand_on({.ids = {7}}, *blocks);
}

TEST_F(PromptQueueTest, FeedsTheLastTokenOfAnEqualPrompt) {
  push(1, 32);
  read();
  push(1, 32);
  const auto pass = plan();
  EXPECT_EQ(pass.started[0].cached, 31);
  EXPECT_EQ(pass.started[0].copy->positions, 15);
  ASSERT_EQ(pass.rows.size(), 1u);
  EXPECT_EQ(pass.rows[0].position, 31);
  EXPECT_TRUE(pass.rows[0].wants_logits);
}

TEST_F(PromptQueueTest, OtherSaltsFindNothing) {
  push(1, 40);
  read();
  Sequence other = sequence(2, count(1000, 40));
  other.salt = "other";
  queue.push(other);
  EXPECT_EQ(plan().started[0].cached, 0);
}

TEST_F(PromptQueueTest, APromptWithoutNumbersIsKeptFromOthers) {
  push(1, 40);
  plan();
  EXPECT_EQ(queue.advance().complete.size(), 1u);
  EXPECT_TRUE(queue.hand_on({.ids = {LocalNextIds::kFailed}}, *blocks).empty());
  EXPECT_EQ(blocks->cached(), 0);
}

TEST_F(PromptQueueTest, APromptWhoseFirstTokenIsItsEndServesOthers) {
  push(1, 40);
  plan();
  queue.advance();
  EXPECT_TRUE(queue.hand_on({.ids = {LocalNextIds::kEnded}}, *blocks).empty());
  EXPECT_EQ(blocks->cached(), 2);
  EXPECT_EQ(blocks->used(), 0);
}

TEST_F(PromptQueueTest, OutputComesFromTheCacheWhereItMay) {
  for (bool share_output : {true, false}) {
    use_pool(100);
    running.clear();
    queue = PromptQueue(100, share_output);
    const Tokens prompt = count(0, 20), emitted = count(500, 30);
    queue.push(sequence(1, prompt, emitted));
    read();
    EXPECT_EQ(blocks->lookup(prompt + emitted, ""), share_output ? 48 : 16);
    queue.push(sequence(2, prompt, emitted));
    EXPECT_EQ(plan().started[0].cached, share_output ? 48 : 16);
    finish_pass();
  }
}

TEST_F(PromptQueueTest, OutputIsReadAgainWhereItMayNotComeFromTheCache) {
  for (bool share_output : {true, false}) {
    use_pool(100);
    running.clear();
    queue = PromptQueue(100, share_output);
    queue.push(sequence(1, count(0, 20) + count(500, 30)));
    read();
    queue.push(sequence(2, count(0, 20), count(500, 30)));
    EXPECT_EQ(plan().started[0].cached, share_output ? 48 : 20) << "of another's prompt";
    finish_pass();
  }
}

TEST_F(PromptQueueTest, ScoredTokensAreReadWhateverTheCacheHolds) {
  push(1, 48);
  read();
  for (const auto& [scored, cached] : {std::pair(0, 0), {1, 0}, {20, 19}, {33, 32}, {47, 46}, {48, 47}}) {
    Sequence again = sequence(2, count(1000, 48));
    again.prompt_logprobs = 1;
    again.scored = scored;
    queue.push(again);
    EXPECT_EQ(plan().started[0].cached, cached) << scored;
    queue.cancel(again.id);
  }
}

// ---- waiting for another ----

TEST_F(PromptQueueTest, WaitsForAPromptThatBeginsAlikeAndIsBeingRead) {
  const Tokens prefix = count(0, 64);
  queue.push(sequence(1, prefix + count(1000, 5)));
  queue.push(sequence(2, prefix + count(2000, 5)));
  queue.push(sequence(3, count(3000, 5)));
  EXPECT_EQ(started(plan()), (Ids{1, 3})) << "one behind it does not wait with it";
  running = finish_pass();
  const auto pass = plan();
  EXPECT_EQ(started(pass), (Ids{2}));
  EXPECT_EQ(pass.started[0].cached, 64);
  EXPECT_EQ(pass.rows.size(), 5u);
}

TEST_F(PromptQueueTest, WaitsNotForLessThanHalfOfWhatItHasToRead) {
  const Tokens prefix = count(0, 48);
  queue.push(sequence(1, prefix));
  queue.push(sequence(2, prefix + count(2000, 50)));
  queue.push(sequence(3, prefix + count(3000, 48)));
  EXPECT_EQ(started(plan()), (Ids{1, 2}));
}

TEST_F(PromptQueueTest, WaitsNotForPiecesOfABlock) {
  queue.push(sequence(1, count(0, 15)));
  queue.push(sequence(2, count(0, 15)));
  EXPECT_EQ(started(plan()), (Ids{1, 2}));
}

TEST_F(PromptQueueTest, WaitsNotForWhatItFindsAlready) {
  queue.push(sequence(1, count(0, 64)));
  read();
  queue.push(sequence(2, count(0, 64) + count(2000, 3)));
  queue.push(sequence(3, count(0, 64) + count(3000, 3)));
  EXPECT_EQ(started(plan()), (Ids{2, 3}));
}

TEST_F(PromptQueueTest, WaitsNotForAnotherSaltNorForOneThatPublishesNothing) {
  Sequence salted = sequence(1, count(0, 64));
  salted.salt = "other";
  Sequence only_read = sequence(2, count(0, 64));
  only_read.max_tokens = 0;
  queue.push(salted);
  queue.push(only_read);
  queue.push(sequence(3, count(0, 64)));
  EXPECT_EQ(started(plan()), (Ids{1, 2, 3}));
}

TEST_F(PromptQueueTest, WaitsNotWhereNothingIsKept) {
  blocks->set_caching(false);
  queue.push(sequence(1, count(0, 64)));
  queue.push(sequence(2, count(0, 64)));
  EXPECT_EQ(started(plan()), (Ids{1, 2}));
}

TEST_F(PromptQueueTest, AShortPromptWaitsNotForALongOneForTheSakeOfABlock) {
  queue.push(sequence(1, count(0, 1000)));
  queue.push(sequence(2, count(0, 16) + count(2000, 4)));
  EXPECT_EQ(started(plan()), (Ids{1, 2}));
}

TEST_F(PromptQueueTest, WaitsForALongOneThatIsNearlyRead) {
  queue.push(sequence(1, count(0, 320)));
  read(288);
  queue.push(sequence(2, count(0, 16) + count(2000, 4)));
  EXPECT_TRUE(started(plan(1)).empty()) << "32 are left to read, and 16 are saved";
}

TEST_F(PromptQueueTest, WaitsNotForOutputThatIsNotToBeShared) {
  queue = PromptQueue(100, false);
  queue.push(sequence(1, count(0, 10), count(500, 54)));
  queue.push(sequence(2, count(0, 10) + count(500, 54) + Tokens{1}));
  EXPECT_EQ(started(plan()), (Ids{1, 2}));
}

TEST_F(PromptQueueTest, ReadsItselfWhereTheOneItWaitedForFails) {
  for (const bool cancelled : {false, true}) {
    queue.push(sequence(1, count(0, 64)));
    queue.push(sequence(2, count(0, 64) + Tokens{5}));
    EXPECT_EQ(started(plan(32)), (Ids{1}));
    queue.advance();
    if (cancelled) {
      queue.cancel(sequence_id(1));
    } else {
      plan(32);
      queue.advance();
      queue.hand_on({.ids = {LocalNextIds::kFailed}}, *blocks);
    }
    const auto pass = plan();
    EXPECT_EQ(started(pass), (Ids{2}));
    EXPECT_EQ(pass.rows.size(), 65u);
    queue.advance();
    queue.hand_on({.ids = {LocalNextIds::kFailed}}, *blocks);
  }
}

TEST_F(PromptQueueTest, ManyEqualPromptsAreReadOnce) {
  for (int id = 1; id <= 10; ++id)
    queue.push(sequence(id, count(0, 64) + Tokens{TokenId(id)}));
  size_t rows = 0;
  for (int passes = 0; !queue.idle(); ++passes) {
    ASSERT_LT(passes, 3);
    rows += plan().rows.size();
    for (LocalSequence& sequence : finish_pass())
      running.push_back(std::move(sequence));
  }
  EXPECT_EQ(rows, 65u + 9);
  EXPECT_EQ(blocks->used(), 4 + 10);
}

// ---- reading ahead ----

class ReadingAhead : public PromptQueueTest {
protected:
  void push_ahead(int id, size_t length) {
    Sequence made = sequence(id, count(1000 * id, length));
    made.ahead = true;
    queue.push(made);
  }
};

TEST_F(ReadingAhead, StartsBeforeThoseThatWait) {
  push(1, 5);
  push_ahead(2, 5);
  push(3, 5);
  push_ahead(4, 5);
  EXPECT_EQ(started(plan()), (Ids{2, 4, 1, 3}));
}

TEST_F(ReadingAhead, IsReadBeforeShorterOnes) {
  push(1, 10);
  push_ahead(2, 100);
  EXPECT_EQ(read(32), (Rows{{1, 2}, {2, 30}})) << "a sixteenth is kept for the others";
  EXPECT_EQ(read(32), (Rows{{1, 2}, {2, 30}}));
}

TEST_F(ReadingAhead, LeavesTheOthersWhatItDoesNotNeed) {
  push(1, 100);
  push(2, 20);
  push_ahead(3, 8);
  EXPECT_EQ(read(48), (Rows{{1, 20}, {2, 20}, {3, 8}}));
}

TEST_F(ReadingAhead, OnlySoManyPassOneThatWaits) {
  use_pool(1);
  auto other = blocks->allocate(16);
  push(1, 5);
  for (int id = 2; id < 30; ++id)
    push_ahead(id, 1);
  other.reset();
  Ids order;
  while (!queue.idle()) {
    const Ids next = started(plan());
    order.insert(order.end(), next.begin(), next.end());
    finish_pass();
  }
  EXPECT_EQ(order.size(), 29u);
  EXPECT_EQ(order[0], 2);
  EXPECT_EQ(order[16], 1);
  EXPECT_TRUE(std::ranges::is_sorted(order.begin() + 17, order.end()));
}

// ---- cancelling ----

TEST_F(PromptQueueTest, CancelsWhatWaits) {
  push(1, 10);
  EXPECT_TRUE(queue.cancel(sequence_id(1)));
  EXPECT_FALSE(queue.cancel(sequence_id(1)));
  EXPECT_TRUE(queue.idle());
  EXPECT_TRUE(plan().rows.empty());
}

TEST_F(PromptQueueTest, CancelsWhatIsBeingRead) {
  push(1, 30);
  push(2, 30);
  read(10);
  EXPECT_EQ(blocks->tables(), 2);
  EXPECT_TRUE(queue.cancel(sequence_id(1)));
  EXPECT_EQ(blocks->tables(), 1) << "its blocks are free at once";
  read();
  EXPECT_EQ(complete, (Ids{2}));
}

TEST_F(PromptQueueTest, CancelsWhatIsInThePass) {
  push(1, 10);
  push(2, 10);
  plan();
  EXPECT_TRUE(queue.cancel(sequence_id(1)));
  const auto read = queue.advance();
  EXPECT_EQ(read.complete, (std::vector<SequenceId>{sequence_id(2)}));
  EXPECT_EQ(read.logits_rows, (std::vector<size_t>{1})) << "of the pass as it was run";
  running = queue.hand_on({.ids = {7}}, *blocks);
}

TEST_F(PromptQueueTest, CancelsWhatWaitsForItsFirstToken) {
  push(1, 40);
  push(2, 10);
  plan();
  const auto read = queue.advance();
  ASSERT_EQ(read.complete.size(), 2u);
  EXPECT_TRUE(queue.cancel(sequence_id(1)));
  EXPECT_FALSE(queue.cancel(sequence_id(1)));
  EXPECT_EQ(blocks->tables(), 1);
  Tokens next(2, 7);
  running = queue.hand_on({.ids = next}, *blocks);
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0].id, sequence_id(2));
  EXPECT_EQ(blocks->cached(), 0) << "its numbers were not looked at";
}

TEST_F(PromptQueueTest, AnotherEpochIsAnotherSequence) {
  push(1, 10);
  EXPECT_FALSE(queue.cancel({stream_id(1), 0, 1}));
  EXPECT_FALSE(queue.cancel({stream_id(1), 1, 0}));
  EXPECT_FALSE(queue.idle());
}

// ---- scores ----

TEST_F(PromptQueueTest, EachTokenIsScoredOnceByTheRowBeforeIt) {
  for (const int32_t budget : {1, 3, 7, 100})
    for (const int32_t scored_budget : {1, 2, 5, 100})
      for (const int32_t scored_before : {0, 1, 6, 20}) {
        queue = PromptQueue(scored_budget, true);
        use_pool(100);
        Sequence scored = sequence(1, count(1000, 20));
        scored.prompt_logprobs = 1;
        scored.scored = scored_before;
        queue.push(scored);
        queue.push(sequence(2, count(2000, 9)));
        int32_t next = scored_before;
        for (int passes = 0; !queue.idle(); ++passes) {
          ASSERT_LT(passes, 200);
          const auto pass = plan(budget);
          std::vector<const Row*> wanting;
          for (const Row& row : pass.rows)
            if (row.wants_logits)
              wanting.push_back(&row);
          for (const auto& piece : pass.pieces) {
            EXPECT_EQ(piece.begin, next);
            size_t row = piece.logits_row;
            for (int32_t position = std::max(piece.begin, 1); position < piece.end; ++position, ++row) {
              ASSERT_LT(row, wanting.size());
              EXPECT_EQ(wanting[row]->token, 1000 + position - 1);
            }
            EXPECT_LE(piece.end - std::max(piece.begin, 1), scored_budget);
            next = piece.end;
          }
          finish_pass();
        }
        EXPECT_EQ(next, 20) << budget << " " << scored_budget << " " << scored_before;
      }
}

} // namespace
} // namespace millrace::testing
