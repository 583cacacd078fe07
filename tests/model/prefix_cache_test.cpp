// What the block manager keeps of ended sequences, whom it gives it to, and what it lets go first.

#include "kernels/attention.hpp"
#include "model/block_manager.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>

namespace millrace {

void PrintTo(const BlockCopy& copy, std::ostream* out) {
  *out << copy.positions << " positions of block " << copy.from << " to block " << copy.to;
}

static bool operator==(const BlockCopy& a, const BlockCopy& b) {
  return a.from == b.from && a.to == b.to && a.positions == b.positions;
}

namespace {

using Tokens = std::vector<TokenId>;
using Table = std::shared_ptr<BlockTable>;

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

std::vector<BlockId> ids(const Table& table) {
  return {table->blocks().begin(), table->blocks().end()};
}

class PrefixCache : public testing::Test {
protected:
  void TearDown() override { EXPECT_NO_THROW(manager->check_integrity()); }

  /// A table for a prompt: its last token is to be fed in any case.
  Table start(const Tokens& prompt, std::string_view salt = {}, int32_t spare = 0) {
    return manager->allocate({.positions = int64_t(prompt.size()),
                              .tokens = std::span(prompt).first(prompt.size() - 1),
                              .salt = salt,
                              .spare = spare});
  }
  /// … and reads it.
  Table read(const Tokens& prompt, std::string_view salt = {}) {
    Table table = start(prompt, salt);
    manager->publish(*table, prompt);
    return table;
  }

  int32_t lookup(const Tokens& tokens, std::string_view salt = {}) { return manager->lookup(tokens, salt); }

  void use_pool(int32_t n_blocks) { manager = std::make_shared<BlockManager>(n_blocks); }

  std::shared_ptr<BlockManager> manager = std::make_shared<BlockManager>(16);
};

// ---- what is found ----

TEST_F(PrefixCache, SharesTheFullBlocksOfAnEqualPrefix) {
  const Tokens prefix = count(0, 32);
  const Table first = read(prefix + Tokens{100});
  const Table second = start(prefix + Tokens{200});
  EXPECT_EQ(second->cached(), 32);
  EXPECT_FALSE(second->copy());
  EXPECT_EQ(ids(second)[0], ids(first)[0]);
  EXPECT_EQ(ids(second)[1], ids(first)[1]);
  EXPECT_NE(ids(second)[2], ids(first)[2]) << "a block that is not full has one owner";
  EXPECT_EQ(manager->used(), 4) << "a shared block counts once";
  EXPECT_EQ(manager->tables(), 2);
}

TEST_F(PrefixCache, FindsNothingThatWasNotPublished) {
  const Tokens prompt = count(0, 40);
  const Table first = start(prompt);
  EXPECT_EQ(start(prompt)->cached(), 0);
  manager->publish(*first, std::span(prompt).first(31));
  EXPECT_EQ(lookup(prompt), 16);
  manager->publish(*first, std::span(prompt).first(32));
  EXPECT_EQ(lookup(prompt), 32);
  manager->publish(*first, prompt);
  EXPECT_EQ(lookup(prompt), 32) << "the third block is not full";
}

TEST_F(PrefixCache, FindsNoMoreThanItIsAskedFor) {
  const Tokens prompt = count(0, 48);
  read(prompt);
  EXPECT_EQ(lookup(count(0, 47)), 32);
  EXPECT_EQ(lookup(prompt), 48);
  const Table again = start(prompt);
  EXPECT_EQ(again->cached(), 47) << "the last token is left to be fed";
  EXPECT_EQ(again->copy()->positions, 15);
}

TEST_F(PrefixCache, FindsABlockOnlyAfterWhatItFollowed) {
  const Tokens a = count(0, 16), b = count(100, 16), end{9};
  read(a + b + end);
  EXPECT_EQ(lookup(b), 0);
  EXPECT_EQ(lookup(b + a), 0);
  EXPECT_EQ(lookup(a + a), 16);
}

TEST_F(PrefixCache, SharesNothingBetweenSalts) {
  const Tokens prompt = count(0, 33);
  const Table ours = read(prompt, "ours");
  EXPECT_EQ(lookup(prompt, "theirs"), 0);
  EXPECT_EQ(lookup(prompt), 0);
  const Table theirs = read(prompt, "theirs");
  EXPECT_EQ(theirs->cached(), 0);
  EXPECT_EQ(manager->used(), 6);
  EXPECT_EQ(start(prompt, "theirs")->blocks()[0], theirs->blocks()[0]);
  EXPECT_EQ(start(prompt, std::string("ours"))->blocks()[0], ours->blocks()[0]);
}

TEST_F(PrefixCache, KeepsTheFullBlocksOfATableThatEnded) {
  const Tokens prompt = count(0, 40);
  const auto blocks = ids(read(prompt));
  EXPECT_EQ(manager->used(), 0);
  EXPECT_EQ(manager->cached(), 2);
  EXPECT_EQ(manager->tables(), 0);
  const Table again = start(prompt);
  EXPECT_EQ(again->blocks()[0], blocks[0]);
  EXPECT_EQ(again->blocks()[1], blocks[1]);
  EXPECT_EQ(manager->cached(), 0);
}

TEST_F(PrefixCache, SharesABlockUntilItsLastUserEnds) {
  const Tokens prompt = count(0, 17);
  Table first = read(prompt), second = read(prompt);
  first.reset();
  EXPECT_EQ(manager->cached(), 0);
  EXPECT_EQ(manager->used(), 2);
  second.reset();
  EXPECT_EQ(manager->cached(), 1);
  EXPECT_EQ(manager->used(), 0);
}

TEST_F(PrefixCache, LooksUpWithoutATrace) {
  const Tokens prompt = count(0, 33);
  read(prompt);
  EXPECT_EQ(lookup(prompt), 32);
  EXPECT_EQ(lookup(prompt, "unknown"), 0);
  EXPECT_EQ(manager->counters().queries, 32) << "those of the table that was made";
  EXPECT_EQ(manager->counters().hits, 0);
  EXPECT_EQ(manager->cached(), 2);
}

// ---- copies ----

TEST_F(PrefixCache, CopiesTheFrontOfABlockThatBeginsAlike) {
  const Tokens prefix = count(0, 16);
  const Table first = read(prefix + count(50, 16));
  const Table second = start(prefix + count(50, 5) + count(90, 20));
  EXPECT_EQ(second->cached(), 21);
  EXPECT_EQ(second->copy(), (BlockCopy{.from = ids(first)[1], .to = ids(second)[1], .positions = 5}));
}

TEST_F(PrefixCache, CopiesFromTheBlockThatBeginsMostAlike) {
  // In the order of their tokens, what is looked up stands between any two of them.
  const auto block = [](size_t equal, TokenId then) { return count(0, equal) + Tokens(16 - equal, then); };
  std::vector<Table> tables;
  std::map<size_t, BlockId> by_length;
  for (size_t equal : {3, 9, 6, 12, 1})
    for (TokenId then : {-1, 99}) {
      if (equal == 9 && then == -1)
        continue;
      tables.push_back(read(block(equal, then)));
      by_length[equal] = tables.back()->blocks()[0];
    }
  const auto copy_for = [&](const Tokens& tokens) { return start(tokens + Tokens{5})->copy(); };
  EXPECT_EQ(copy_for(block(9, 50))->from, by_length[9]);
  EXPECT_EQ(copy_for(block(9, 50))->positions, 9);
  EXPECT_EQ(copy_for(block(9, 120))->from, by_length[9]);
  EXPECT_EQ(copy_for(count(0, 15))->positions, 12);
  EXPECT_EQ(copy_for(count(0, 4))->positions, 4) << "all of them, whatever follows";
  EXPECT_EQ(copy_for(Tokens{0, 99})->positions, 2);
  EXPECT_EQ(copy_for(block(8, 50))->positions, 8);
}

TEST_F(PrefixCache, CopiesNothingWhereNoTokenIsEqual) {
  const Table first = read(count(0, 32));
  EXPECT_FALSE(start(count(1, 32))->copy());
  EXPECT_FALSE(start(count(0, 16) + count(0, 16))->copy());
  EXPECT_FALSE(start(count(0, 17))->copy()) << "no token is left to be found";
}

TEST_F(PrefixCache, KeepsTheSourceOfACopyAsLongAsTheTable) {
  use_pool(3);
  read(count(0, 16));
  Table copying = start(count(0, 8) + count(90, 8));
  ASSERT_TRUE(copying->copy());
  EXPECT_EQ(manager->used(), 2) << "the source is in use, too";
  EXPECT_EQ(manager->cached(), 0);
  EXPECT_FALSE(manager->allocate(32));
  const Table other = manager->allocate(16);
  EXPECT_NE(other->blocks()[0], copying->copy()->from);
  EXPECT_EQ(lookup(count(0, 16)), 16);
  copying.reset();
  EXPECT_TRUE(manager->allocate(32));
}

TEST_F(PrefixCache, GivesUpACopyWhereItsSourceIsInTheWay) {
  use_pool(2);
  read(count(0, 16));
  const Table table = start(count(0, 8) + count(90, 20));
  ASSERT_TRUE(table);
  EXPECT_FALSE(table->copy());
  EXPECT_EQ(table->cached(), 0);
  EXPECT_EQ(manager->counters().evictions, 1);
}

TEST_F(PrefixCache, GivesUpACopyForTheSpareBlocks) {
  use_pool(3);
  read(count(0, 16));
  EXPECT_FALSE(start(count(0, 8) + Tokens{90}, {}, 2)->copy());
  EXPECT_TRUE(start(count(0, 8) + Tokens{90}, {}, 1)->copy());
}

TEST_F(PrefixCache, CopiesFromABlockInUseWhateverTheRoom) {
  use_pool(2);
  const Table first = read(count(0, 16));
  const Table second = start(count(0, 8) + Tokens{90});
  EXPECT_EQ(second->copy(), (BlockCopy{.from = ids(first)[0], .to = ids(second)[0], .positions = 8}));
}

TEST_F(PrefixCache, MayFindItsSourceAgainWhenItPublishes) {
  read(count(0, 16));
  Table table = start(count(0, 16)); // 15 of them are copied, the last is fed
  ASSERT_EQ(table->copy()->positions, 15);
  const BlockId source = table->copy()->from;
  manager->publish(*table, count(0, 16));
  EXPECT_EQ(table->blocks()[0], source);
  EXPECT_EQ(manager->used(), 1);
  manager->check_integrity();
  table.reset();
  EXPECT_EQ(manager->cached(), 1);
}

TEST_F(PrefixCache, LetsTheSourceOfACopyGoWhenItPublishes) {
  use_pool(2);
  Table first = read(count(0, 16));
  const Table table = start(count(0, 8) + Tokens{90});
  ASSERT_TRUE(table->copy());
  first.reset();
  EXPECT_FALSE(manager->grow(*table, 17)) << "the only other block may not have been copied yet";
  manager->publish(*table, count(0, 8) + Tokens{90});
  EXPECT_FALSE(table->copy());
  EXPECT_EQ(manager->cached(), 1);
  EXPECT_TRUE(manager->grow(*table, 17)) << "a sequence alone has the whole pool";
}

// ---- publishing ----

TEST_F(PrefixCache, PublishesPieceByPiece) {
  const Tokens tokens = count(0, 100);
  const Table table = manager->allocate(1);
  for (size_t n = 1; n <= tokens.size(); n += 7) {
    ASSERT_TRUE(manager->grow(*table, int64_t(n)));
    manager->publish(*table, std::span(tokens).first(n));
    EXPECT_EQ(lookup(tokens), int32_t(n) / kBlockSize * kBlockSize);
    manager->check_integrity();
  }
}

TEST_F(PrefixCache, TakesTheBlockOfWhoWasFaster) {
  const Tokens prompt = count(0, 40);
  const Table first = start(prompt), second = start(prompt);
  manager->publish(*first, prompt);
  const auto own = ids(second);
  manager->publish(*second, prompt);
  EXPECT_EQ(second->blocks()[0], first->blocks()[0]);
  EXPECT_EQ(second->blocks()[1], first->blocks()[1]);
  EXPECT_EQ(second->blocks()[2], own[2]);
  EXPECT_EQ(second->cached(), 0) << "it was not found when the table was made";
  EXPECT_EQ(manager->used(), 4) << "its own two are free";
}

TEST_F(PrefixCache, PublishesAfterACachedBlockThatItExchanged) {
  const Tokens prompt = count(0, 40);
  const Table slow = start(prompt);
  read(count(0, 16));
  EXPECT_EQ(manager->cached(), 1);
  manager->publish(*slow, prompt);
  EXPECT_EQ(manager->cached(), 0);
  EXPECT_EQ(lookup(prompt), 32);
}

TEST_F(PrefixCache, SharesBranchesUpToWhereTheyPart) {
  const Tokens prefix = count(0, 32);
  std::vector<Table> tables;
  for (TokenId branch : {100, 200, 300})
    tables.push_back(read(prefix + count(branch, 20)));
  EXPECT_EQ(manager->used(), 2 + 3 * 2);
  for (TokenId branch : {300, 100, 200})
    EXPECT_EQ(lookup(prefix + count(branch, 16)), 48);
  tables.clear();
  EXPECT_EQ(manager->cached(), 2 + 3);
}

// ---- eviction ----

TEST_F(PrefixCache, EvictsOnlyWhenNoBlockIsFree) {
  use_pool(4);
  read(count(0, 33));
  EXPECT_EQ(manager->cached(), 2);
  Table table = manager->allocate(32);
  EXPECT_EQ(manager->counters().evictions, 0);
  EXPECT_EQ(lookup(count(0, 32)), 32);
  EXPECT_TRUE(manager->grow(*table, 33));
  EXPECT_EQ(manager->counters().evictions, 1);
  EXPECT_EQ(lookup(count(0, 32)), 16) << "a sequence is evicted from its end";
  EXPECT_TRUE(manager->grow(*table, 64));
  EXPECT_EQ(manager->counters().evictions, 2);
  EXPECT_FALSE(manager->grow(*table, 65));
  EXPECT_EQ(table->blocks().size(), 4u);
}

TEST_F(PrefixCache, EvictsWhatWasUsedLongestAgo) {
  use_pool(3);
  read(count(100, 16));
  read(count(200, 16));
  read(count(300, 16));
  start(count(100, 17)); // and ends at once
  const Table table = manager->allocate(16);
  EXPECT_EQ(lookup(count(100, 16)), 16);
  EXPECT_EQ(lookup(count(200, 16)), 0);
  EXPECT_EQ(lookup(count(300, 16)), 16);
}

TEST_F(PrefixCache, CountsTheUseThatEndedLast) {
  use_pool(3);
  Table longest = read(count(100, 16));
  read(count(200, 16));
  longest.reset();
  const Table table = manager->allocate(32);
  EXPECT_EQ(lookup(count(100, 16)), 16);
  EXPECT_EQ(lookup(count(200, 16)), 0);
}

TEST_F(PrefixCache, EvictsEveryBlockBeforeThoseItFollows) {
  use_pool(6);
  const Tokens prefix = count(0, 32);
  read(prefix + count(100, 16));
  read(prefix + count(200, 16)); // also uses the prefix
  const Table other = manager->allocate(32);
  std::vector<int32_t> left;
  for (int64_t blocks = 3; blocks <= 6; ++blocks) {
    ASSERT_TRUE(manager->grow(*other, blocks * kBlockSize));
    left.push_back(lookup(prefix + count(100, 16)) + lookup(prefix + count(200, 16)));
    manager->check_integrity();
  }
  EXPECT_EQ(left, (std::vector<int32_t>{32 + 48, 32 + 32, 16 + 16, 0}));
}

TEST_F(PrefixCache, EvictsNothingThatTheTableFound) {
  use_pool(4);
  read(count(0, 48));
  EXPECT_FALSE(start(count(0, 48) + count(500, 17))) << "five blocks";
  EXPECT_EQ(manager->cached(), 3) << "all or nothing";
  EXPECT_EQ(manager->counters().evictions, 0);
  const Table table = start(count(0, 48) + Tokens{500});
  EXPECT_EQ(table->cached(), 48);
  EXPECT_EQ(manager->counters().evictions, 0);
}

TEST_F(PrefixCache, ChangesNothingWhereATableDoesNotFit) {
  use_pool(4);
  read(count(100, 16));
  read(count(200, 16));
  const Table running = manager->allocate(16);
  EXPECT_FALSE(start(count(100, 16) + count(500, 49)));
  EXPECT_FALSE(start(count(100, 16) + count(500, 17), {}, 1));
  EXPECT_FALSE(manager->allocate(INT64_MAX));
  EXPECT_EQ(manager->counters().queries, 2 * 15);
  EXPECT_EQ(manager->counters().hits, 0);
  const Table table = manager->allocate(32); // the failed one did not renew what it found
  EXPECT_EQ(lookup(count(100, 16)), 0);
  EXPECT_EQ(lookup(count(200, 16)), 16);
}

TEST_F(PrefixCache, LeavesSpareBlocks) {
  use_pool(4);
  read(count(0, 32));
  EXPECT_FALSE(start(count(500, 32), {}, 3));
  EXPECT_TRUE(start(count(500, 32), {}, 2)) << "those that can be evicted count";
  EXPECT_FALSE(start(count(0, 33), {}, 2)) << "but not those it takes itself";
  EXPECT_TRUE(start(count(0, 33), {}, 1));
}

TEST_F(PrefixCache, EvictsSaltsThatNobodyUses) {
  use_pool(4);
  for (int client = 0; client < 1000; ++client) {
    read(count(0, 17), "client " + std::to_string(client));
    manager->check_integrity(); // throws if a salt without blocks were kept
  }
  EXPECT_EQ(manager->cached(), 3) << "the last table took the fourth block, too, and filled only one";
  EXPECT_EQ(manager->counters().evictions, 997);
  EXPECT_EQ(lookup(count(0, 16), "client 997"), 16);
  EXPECT_EQ(lookup(count(0, 16), "client 996"), 0);
}

TEST_F(PrefixCache, LetsALongSequenceGo) {
  constexpr int32_t kBlocks = 200'000; // nested calls, one for each, would not fit on the stack
  use_pool(kBlocks);
  const Tokens tokens(size_t(kBlocks) * kBlockSize, 7);
  read(tokens);
  EXPECT_EQ(manager->cached(), kBlocks);
  manager->check_integrity();
  EXPECT_TRUE(manager->allocate(int64_t(kBlocks) * kBlockSize));
  EXPECT_EQ(manager->cached(), 0);
  read(tokens);
}

// ---- counters and the switch ----

TEST_F(PrefixCache, CountsTokensThatWereLookedUpAndFound) {
  const Tokens prompt = count(0, 40);
  read(prompt);
  read(prompt);
  start(count(0, 20) + count(500, 20));
  const CacheCounters counters = manager->counters();
  EXPECT_EQ(counters.queries, 3 * 39);
  EXPECT_EQ(counters.hits, 0 + 32 + 20);
  EXPECT_EQ(counters.evictions, 0);
}

TEST_F(PrefixCache, KeepsNothingWithoutCaching) {
  manager = std::make_shared<BlockManager>(4, false);
  const Tokens prompt = count(0, 40);
  const Table first = read(prompt);
  EXPECT_EQ(lookup(prompt), 0);
  EXPECT_FALSE(start(prompt));
  EXPECT_EQ(read({1, 2, 3})->cached(), 0);
  EXPECT_EQ(manager->counters().queries, 0);
}

TEST_F(PrefixCache, FreesWhatIsCachedWhenItIsSwitchedOff) {
  const Tokens prompt = count(0, 40);
  const Table running = read(count(0, 16) + count(500, 17));
  read(prompt);
  EXPECT_EQ(manager->cached(), 1);
  EXPECT_TRUE(manager->caching());
  manager->set_caching(false);
  EXPECT_FALSE(manager->caching());
  EXPECT_EQ(manager->cached(), 0);
  EXPECT_EQ(manager->used(), 3) << "a running table keeps its blocks";
  EXPECT_EQ(lookup(prompt), 0);
  EXPECT_EQ(start(prompt)->cached(), 0);
  EXPECT_EQ(manager->counters().evictions, 0);
}

TEST_F(PrefixCache, FreesPublishedBlocksWithTheirTableOnceSwitchedOff) {
  const Tokens prompt = count(0, 40);
  Table first = read(prompt), second = start(prompt), copying = start(count(0, 20) + Tokens{500});
  ASSERT_TRUE(copying->copy());
  manager->set_caching(false);
  first.reset();
  second.reset();
  EXPECT_EQ(manager->used(), 3) << "one that is shared, one to copy from, its own";
  manager->check_integrity();
  copying.reset();
  EXPECT_EQ(manager->used(), 0);
  EXPECT_EQ(manager->cached(), 0);
}

TEST_F(PrefixCache, GoesOnWhenItIsSwitchedOnAgain) {
  const Tokens prompt = count(0, 40);
  Table table = read(count(0, 16));
  ASSERT_TRUE(manager->grow(*table, 40));
  manager->set_caching(false);
  manager->publish(*table, prompt);
  manager->set_caching(true);
  EXPECT_EQ(lookup(prompt), 16);
  manager->publish(*table, prompt);
  EXPECT_EQ(lookup(prompt), 32);
}

TEST_F(PrefixCache, PublishesTablesThatBeganEmpty) {
  const Table table = manager->allocate({.positions = 0, .salt = "salt"});
  EXPECT_EQ(manager->tables(), 0);
  ASSERT_TRUE(manager->grow(*table, 16));
  EXPECT_EQ(manager->tables(), 1);
  manager->publish(*table, count(0, 16));
  EXPECT_EQ(lookup(count(0, 16), "salt"), 16);
}

// ---- any history ----

/// The histories there are: a number for each, so that equal numbers are equal tokens under an equal salt.
class Histories {
public:
  int root(const std::string& salt) { return number(roots_, salt); }
  int after(int history, TokenId token) { return number(next_, std::pair(history, token)); }

private:
  template <class Key> int number(std::map<Key, int>& numbers, const Key& key) {
    const auto [known, is_new] = numbers.try_emplace(key, count_ + 1);
    count_ += is_new;
    return known->second;
  }
  int count_ = 0;
  std::map<std::string, int> roots_;
  std::map<std::pair<int, TokenId>, int> next_;
};

/// The cache as one would write it down: a list of published blocks, searched from one end to the other.
struct Model {
  struct Block {
    std::vector<int> histories; // at each of its positions
    int before = 0;             // history that it follows
    int users = 0;
    int64_t left = 0; // when its last user ended
  };
  struct Sequence {
    int root = 0;
    std::vector<int> histories; // at each position, as far as it is known
    size_t blocks = 0, path = 0;
    int32_t cached = 0;
    int source = 0; // its last history
  };

  int32_t total = 0, free = 0;
  bool caching = true;
  int64_t clock = 0;
  std::map<int, Block> published; // by the last history
  CacheCounters counters;

  int32_t cached() const {
    return int32_t(std::ranges::count_if(published, [](const auto& block) { return block.second.users == 0; }));
  }
  int32_t used() const { return total - free - cached(); }

  static int before(const Sequence& sequence, size_t block) {
    return block == 0 ? sequence.root : sequence.histories[block * kBlockSize - 1];
  }
  static int end(const Sequence& sequence, size_t block) { return sequence.histories[(block + 1) * kBlockSize - 1]; }

  size_t find(const Sequence& sequence, size_t tokens) const {
    size_t n = 0;
    while (caching && (n + 1) * kBlockSize <= tokens && published.contains(end(sequence, n)))
      ++n;
    return n;
  }

  /// Positions that the block has in common with the sequence's from there on.
  static size_t common(const Block& block, const Sequence& sequence, size_t begin, size_t end) {
    size_t n = 0;
    while (n < kBlockSize && begin + n < end && block.histories[n] == sequence.histories[begin + n])
      ++n;
    return n;
  }

  void take() {
    if (free > 0) {
      --free;
      return;
    }
    auto oldest = published.end();
    for (auto block = published.begin(); block != published.end(); ++block) {
      const bool is_leaf = std::ranges::none_of(published, [&](const auto& b) { return b.second.before == block->first; });
      if (block->second.users == 0 && is_leaf && (oldest == published.end() || block->second.left < oldest->second.left))
        oldest = block;
    }
    RC_ASSERT(oldest != published.end());
    published.erase(oldest);
    ++counters.evictions;
  }

  void leave(int history) {
    Block& block = published.at(history);
    block.left = ++clock;
    if (--block.users == 0 && !caching) {
      published.erase(history);
      ++free;
    }
  }

  void end(const Sequence& sequence) {
    free += int32_t(sequence.blocks - sequence.path);
    if (sequence.source)
      leave(sequence.source);
    for (size_t i = sequence.path; i-- > 0;)
      leave(end(sequence, i));
  }
};

/// A pool, sequences on it, and what stands in its blocks.
class History {
public:
  explicit History(int32_t n_blocks)
      : manager_{std::make_shared<BlockManager>(n_blocks)}, contents_(size_t(n_blocks) * kBlockSize) {
    model_.total = model_.free = n_blocks;
  }

  struct Step {
    int action = 0, which = 0, amount = 0;
    std::vector<int> pieces; // of a prompt
  };

  void take(const Step& step) {
    switch (step.action) {
    case 0:
    case 1:
    case 2: start(step); break;
    case 3: with_one(step, [&](Running& r) { write(r, size_t(step.amount)); }); break;
    case 4: with_one(step, [&](Running& r) { grow(r, step.amount); }); break;
    case 5:
    case 6: with_one(step, [&](Running& r) { publish(r, step.amount % 3 == 0 ? size_t(step.amount) : r.written); }); break;
    case 7:
    case 8: end(step); break;
    case 9: set_caching(step.amount % 4 != 0); break;
    }
    check();
  }

private:
  struct Running {
    Table table;
    Tokens tokens;
    size_t written = 0; // positions
    Model::Sequence model;
  };

  /// Prompts that often begin alike: every piece is one of a few blocks, or the front of one.
  static Tokens prompt(const std::vector<int>& pieces) {
    Tokens tokens;
    for (int piece : pieces) {
      Tokens block(kBlockSize, piece % 3);
      std::fill_n(block.begin(), 6, 9);
      if (piece % 4 == 3)
        block.resize(size_t(piece) % kBlockSize + 1);
      tokens = tokens + block;
    }
    tokens.push_back(5);
    return tokens;
  }

  std::vector<int> histories(int history, const Tokens& tokens) {
    std::vector<int> result;
    for (TokenId token : tokens)
      result.push_back(history = known_.after(history, token));
    return result;
  }

  void start(const Step& step) {
    Running r;
    const std::string salt = step.which % 4 == 0 ? "other" : "";
    r.tokens = prompt(step.pieces);
    r.model.root = known_.root(salt);
    r.model.histories = histories(r.model.root, r.tokens);
    const size_t lookup = r.tokens.size() - 1;
    const int64_t positions = int64_t(r.tokens.size()) + step.amount;
    const int32_t spare = step.which % 3;

    // What is to be expected.
    const size_t n = size_t(BlockManager::blocks_for(positions)), path = model_.find(r.model, lookup), own = n - path;
    RC_ASSERT(manager_->lookup(std::span(r.tokens).first(lookup), salt) == int32_t(path) * kBlockSize);
    size_t room = size_t(model_.free + model_.cached());
    for (size_t i = 0; i < path; ++i)
      room -= model_.published.at(Model::end(r.model, i)).users == 0;
    size_t most = 0;
    for (const auto& [history, block] : model_.published)
      if (model_.caching && block.before == Model::before(r.model, path))
        most = std::max(most, Model::common(block, r.model, path * kBlockSize, lookup));

    r.table = manager_->allocate(
        {.positions = positions, .tokens = std::span(r.tokens).first(lookup), .salt = salt, .spare = spare});
    RC_ASSERT(bool(r.table) == (own + size_t(spare) <= room));
    if (!r.table)
      return;
    RC_ASSERT(r.table->blocks().size() == n);

    // Any of the blocks that begin most alike may be copied from, unless it takes the last room.
    if (const auto& copy = r.table->copy()) {
      const auto source = std::ranges::find_if(model_.published, [&](const auto& block) {
        return std::ranges::equal(block.second.histories, contents(copy->from));
      });
      RC_ASSERT(source != model_.published.end());
      RC_ASSERT(source->second.before == Model::before(r.model, path));
      RC_ASSERT(copy->positions == int32_t(most));
      RC_ASSERT(most > 0u);
      RC_ASSERT(copy->to == r.table->blocks()[path]);
      RC_ASSERT((source->second.users > 0 || own + size_t(spare) < room));
      ++source->second.users;
      r.model.source = source->first;
    } else {
      RC_ASSERT((most == 0 || own + size_t(spare) == room));
    }
    r.model.cached = int32_t(path) * kBlockSize + (r.model.source ? int32_t(most) : 0);
    RC_ASSERT(r.table->cached() == r.model.cached);
    if (model_.caching) {
      model_.counters.queries += int64_t(lookup);
      model_.counters.hits += r.model.cached;
    }
    for (size_t i = 0; i < path; ++i)
      ++model_.published.at(Model::end(r.model, i)).users;
    for (size_t i = 0; i < own; ++i)
      model_.take();
    r.model.blocks = n;
    r.model.path = path;

    if (const auto& copy = r.table->copy())
      std::ranges::copy(contents(copy->from).first(size_t(copy->positions)), contents(copy->to).begin());
    r.written = size_t(r.table->cached());
    running_.push_back(std::move(r));
  }

  /// Feeds tokens, which are drawn when those of the prompt are at their end.
  void write(Running& r, size_t n) {
    for (size_t end = std::min(r.written + n, r.table->blocks().size() * kBlockSize); r.written < end; ++r.written) {
      if (r.written == r.tokens.size()) {
        r.tokens.push_back(TokenId(r.written % 3 == 0));
        r.model.histories.push_back(known_.after(r.model.histories.back(), r.tokens.back()));
      }
      const BlockId id = r.table->blocks()[r.written / kBlockSize];
      for (const Running& other : running_)
        RC_ASSERT((&other == &r || std::ranges::find(other.table->blocks(), id) == other.table->blocks().end()));
      contents(id)[r.written % kBlockSize] = r.model.histories[r.written];
    }
  }

  void grow(Running& r, int64_t more) {
    const int64_t positions = int64_t(r.table->blocks().size()) * kBlockSize + more - 10;
    const size_t n = std::max(r.model.blocks, size_t(BlockManager::blocks_for(std::max<int64_t>(positions, 0))));
    const bool fits = n - r.model.blocks <= size_t(model_.free + model_.cached());
    RC_ASSERT(manager_->grow(*r.table, std::max<int64_t>(positions, 0)) == fits);
    for (; fits && r.model.blocks < n; ++r.model.blocks)
      model_.take();
    RC_ASSERT(r.table->blocks().size() == r.model.blocks);
  }

  void publish(Running& r, size_t n) {
    n = std::clamp(n, std::min(r.model.path * kBlockSize, r.written), r.written);
    manager_->publish(*r.table, std::span(r.tokens).first(n));
    if (r.model.source)
      model_.leave(std::exchange(r.model.source, 0));
    for (; model_.caching && (r.model.path + 1) * kBlockSize <= n; ++r.model.path) {
      const auto first = r.model.histories.begin() + int64_t(r.model.path) * kBlockSize;
      const auto [block, is_new] =
          model_.published.try_emplace(Model::end(r.model, r.model.path),
                                       Model::Block{.histories = {first, first + kBlockSize},
                                                    .before = Model::before(r.model, r.model.path)});
      ++block->second.users;
      model_.free += !is_new;
    }
  }

  void end(const Step& step) {
    if (running_.empty())
      return;
    const auto r = running_.begin() + step.which % int(running_.size());
    model_.end(r->model);
    running_.erase(r);
  }

  void set_caching(bool caching) {
    manager_->set_caching(caching);
    model_.caching = caching;
    if (!caching)
      model_.free += int32_t(std::erase_if(model_.published, [](const auto& block) { return block.second.users == 0; }));
  }

  void check() {
    manager_->check_integrity();
    RC_ASSERT(manager_->used() == model_.used());
    RC_ASSERT(manager_->cached() == model_.cached());
    RC_ASSERT(manager_->tables() == int32_t(running_.size()));
    const CacheCounters counters = manager_->counters();
    RC_ASSERT(counters.queries == model_.counters.queries);
    RC_ASSERT(counters.hits == model_.counters.hits);
    RC_ASSERT(counters.evictions == model_.counters.evictions);
    for (const Running& r : running_)
      for (size_t position = 0; position < r.written; ++position)
        RC_ASSERT(contents(r.table->blocks()[position / kBlockSize])[position % kBlockSize] == r.model.histories[position]);
  }

  template <class Do> void with_one(const Step& step, Do action) {
    if (!running_.empty())
      action(running_[size_t(step.which) % running_.size()]);
  }

  std::span<int> contents(BlockId id) { return std::span(contents_).subspan(size_t(id) * kBlockSize, kBlockSize); }

  std::shared_ptr<BlockManager> manager_;
  Model model_;
  Histories known_;
  std::vector<int> contents_; // a history for each position of the pool
  std::vector<Running> running_;
};

TEST(PrefixCacheHistory, IsThatOfASimpleModelAndEveryTableReadsItsOwnTokens) {
  const auto steps = rc::gen::container<std::vector<History::Step>>(rc::gen::build<History::Step>(
      rc::gen::set(&History::Step::action, rc::gen::weightedElement<int>({{9, 0}, {9, 3}, {3, 4}, {9, 5}, {9, 7}, {1, 9}})),
      rc::gen::set(&History::Step::which, rc::gen::inRange(0, 1000)),
      rc::gen::set(&History::Step::amount, rc::gen::inRange(0, 40)),
      rc::gen::set(&History::Step::pieces, rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 60)))));
  EXPECT_TRUE(rc::check("any order of starts, writes, growth, publications and ends", [&] {
    History history{*rc::gen::inRange(0, 24)};
    for (const auto& step : *rc::gen::scale(3, steps))
      history.take(step);
  }));
}

// ---- threads ----

TEST_F(PrefixCache, ServesManyThreads) {
  // What stands at a position: a number made of the salt and all tokens up to there. Not guarded: a block that one thread reads
  // while another writes is seen by the values and by ThreadSanitizer.
  constexpr int32_t kBlocks = 24;
  use_pool(kBlocks);
  std::vector<uint64_t> contents(size_t(kBlocks) * kBlockSize);
  const auto after = [](uint64_t history, TokenId token) { return (history ^ uint64_t(token + 1)) * 0x9E3779B97F4A7C15 + 1; };
  std::mutex mutex;
  Table parked; // a table ends on another thread than the one it was made on
  std::atomic<int64_t> wrong = 0, hits = 0;

  const auto serve = [&](uint32_t seed) {
    std::mt19937 random{seed};
    for (int i = 0; i < 3000; ++i) {
      const bool salted = random() % 4 == 0;
      Tokens prompt = Tokens(16, TokenId(random() % 2)) + Tokens(random() % 20, TokenId(random() % 3)) +
                      Tokens(1 + random() % 30, TokenId(random() % 3));
      Table table = start(prompt, salted ? "salt" : "", int32_t(random() % 2));
      if (!table)
        continue;
      hits += table->cached();
      const auto slot = [&](size_t position) -> uint64_t& {
        return contents[size_t(table->blocks()[position / kBlockSize]) * kBlockSize + position % kBlockSize];
      };
      if (const auto& copy = table->copy())
        std::copy_n(&contents[size_t(copy->from) * kBlockSize], copy->positions, &contents[size_t(copy->to) * kBlockSize]);
      uint64_t history = salted;
      for (size_t position = 0; position < prompt.size(); ++position) {
        history = after(history, prompt[position]);
        if (position >= size_t(table->cached()))
          slot(position) = history;
      }
      manager->publish(*table, prompt);
      history = salted;
      for (size_t position = 0; position < prompt.size(); ++position) {
        history = after(history, prompt[position]);
        wrong += slot(position) != history;
      }
      manager->grow(*table, int64_t(prompt.size() + random() % 30));
      if (i % 100 == 0)
        manager->check_integrity();
      std::lock_guard lock{mutex};
      std::swap(parked, table);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 4; ++seed)
    threads.emplace_back(serve, seed);
  for (auto& thread : threads)
    thread.join();
  parked.reset();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits, 0);
  EXPECT_GT(manager->counters().evictions, 0);
  EXPECT_EQ(manager->used(), 0);
}

} // namespace
} // namespace millrace
