#include "model/block_manager.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <set>
#include <thread>

namespace millrace {
namespace {

// The same cases in each run; another seed can be set from outside.
[[maybe_unused]] const int seed_is_set = setenv("RC_PARAMS", "seed=1", /*overwrite=*/0);

TEST(BlockManager, RoundsPositionsUpToBlocks) {
  EXPECT_EQ(BlockManager::blocks_for(0), 0);
  EXPECT_EQ(BlockManager::blocks_for(1), 1);
  EXPECT_EQ(BlockManager::blocks_for(16), 1);
  EXPECT_EQ(BlockManager::blocks_for(17), 2);
  EXPECT_EQ(BlockManager::blocks_for(INT64_MAX), INT32_MAX);
}

TEST(BlockManager, GivesAllBlocksOrNone) {
  auto manager = std::make_shared<BlockManager>(4);
  auto three = manager->allocate(48);
  ASSERT_TRUE(three);
  EXPECT_EQ(manager->used(), 3);

  EXPECT_FALSE(manager->allocate(17)) << "only one block is left";
  EXPECT_FALSE(manager->allocate(INT64_MAX));
  EXPECT_EQ(manager->used(), 3);

  EXPECT_TRUE(manager->allocate(16));
  manager->check_integrity();
}

TEST(BlockManager, TakesBlocksBackWithTheirTable) {
  auto manager = std::make_shared<BlockManager>(2);
  for (int i = 0; i < 5; ++i) {
    auto table = manager->allocate(32);
    ASSERT_TRUE(table);
    EXPECT_EQ(std::vector<BlockId>(table->blocks().begin(), table->blocks().end()),
              (std::vector<BlockId>{0, 1}));
  }
  EXPECT_EQ(manager->used(), 0);
  manager->check_integrity();
}

TEST(BlockManager, LivesAsLongAsATable) {
  auto manager = std::make_shared<BlockManager>(1);
  auto table = manager->allocate(1);
  std::weak_ptr<BlockManager> watch = manager;
  manager.reset();
  EXPECT_FALSE(watch.expired());
  table.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(BlockManager, GivesEmptyTables) {
  auto manager = std::make_shared<BlockManager>(0);
  ASSERT_TRUE(manager->allocate(0));
  EXPECT_FALSE(manager->allocate(1));
  manager->check_integrity();
}

TEST(BlockManager, NeverGivesABlockTwice) {
  EXPECT_TRUE(rc::check("any order of allocations and releases", [] {
    auto total = *rc::gen::inRange(0, 40);
    auto manager = std::make_shared<BlockManager>(total);
    std::vector<std::shared_ptr<BlockTable>> tables;
    for (auto step : *rc::gen::container<std::vector<int>>(rc::gen::inRange(-8, 200))) {
      if (step >= 0) {
        int32_t before = manager->used();
        auto table = manager->allocate(step);
        RC_ASSERT(bool(table) == (before + BlockManager::blocks_for(step) <= total));
        if (table)
          tables.push_back(table);
      } else if (!tables.empty()) {
        tables.erase(tables.begin() + (-step) % int(tables.size()));
      }
      std::set<BlockId> held;
      size_t sum = 0;
      for (auto& table : tables) {
        held.insert(table->blocks().begin(), table->blocks().end());
        sum += table->blocks().size();
      }
      RC_ASSERT(held.size() == sum);
      RC_ASSERT(sum == size_t(manager->used()));
      for (BlockId id : held)
        RC_ASSERT((id >= 0 && id < total));
      manager->check_integrity();
    }
    tables.clear();
    RC_ASSERT(manager->used() == 0);
    manager->check_integrity();
  }));
}

TEST(BlockManager, ServesManyThreads) {
  auto manager = std::make_shared<BlockManager>(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i)
        if (auto table = manager->allocate(48))
          manager->check_integrity();
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(manager->used(), 0);
  manager->check_integrity();
}

} // namespace
} // namespace millrace
