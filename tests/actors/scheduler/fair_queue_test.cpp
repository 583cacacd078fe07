#include "actors/scheduler/fair_queue.hpp"
#include "tests/actors/reader.hpp"

#include <map>
#include <string>
#include <vector>

namespace millrace::testing {
namespace {

using namespace std::chrono_literals;

class FairQueueTest : public ::testing::Test {
protected:
  struct Asked {
    std::string tenant = {};
    int32_t priority = 0;
    int32_t n = 1;
  };
  /// A request of the next number, whose id is that, admitted now.
  int push(const Asked& asked) {
    for (int32_t choice = 0; choice < asked.n; ++choice)
      queue.push({.request = stream_id(number),
                  .choice = choice,
                  .tenant = asked.tenant,
                  .priority = asked.priority,
                  .number = uint64_t(number),
                  .since = now});
    return number++;
  }
  /// The number of the next one, or -1.
  int pop() {
    const auto choice = queue.pop(now);
    return choice ? int(choice->number) : -1;
  }
  /// Takes the next one and serves it so many tokens, as a device would.
  std::string serve(int64_t tokens) {
    const auto choice = queue.pop(now);
    if (!choice)
      return "nobody";
    queue.add_in_device(choice->tenant, 1);
    queue.charge(choice->tenant, tokens);
    queue.add_in_device(choice->tenant, -1);
    return choice->tenant;
  }

  FairQueue queue{10s};
  FairQueue::Time now{1h};
  int number = 1;
};

// ---- age ----

TEST_F(FairQueueTest, IsEmptyAtFirst) {
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.front(now), nullptr);
  EXPECT_FALSE(queue.pop(now));
  EXPECT_EQ(queue.active_tenants(), 0u);
}

TEST_F(FairQueueTest, TakesTheOldestFirstThenTheLowerChoice) {
  push({.n = 3});
  push({.n = 2});
  std::vector<std::pair<int, int>> order;
  while (const auto choice = queue.pop(now))
    order.emplace_back(int(choice->number), choice->choice);
  EXPECT_EQ(order, (std::vector<std::pair<int, int>>{{1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}}));
}

TEST_F(FairQueueTest, TheFrontIsWhatPopGives) {
  push({.tenant = "a", .priority = 2});
  push({.tenant = "b", .priority = 1});
  EXPECT_EQ(queue.front(now)->number, 2u);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(pop(), 2);
  EXPECT_EQ(queue.front(now)->number, 1u);
}

TEST_F(FairQueueTest, OneThatComesAgainHasItsOldPlace) {
  push({});
  push({});
  const WaitingChoice first = *queue.pop(now);
  push({});
  queue.push(first);
  EXPECT_EQ(pop(), 1);
  EXPECT_EQ(pop(), 2);
}

// ---- urgency ----

TEST_F(FairQueueTest, TakesTheMostUrgentFirst) {
  for (int32_t priority : {0, 5, -100, 100, -1})
    push({.priority = priority});
  std::vector<int> order;
  for (int next = pop(); next != -1; next = pop())
    order.push_back(next);
  EXPECT_EQ(order, (std::vector<int>{3, 5, 1, 2, 4}));
}

TEST_F(FairQueueTest, AgeMakesAWaitingOneAsUrgentAsTheMostUrgent) {
  push({.priority = 3});
  now += 29s;
  push({.priority = 0});
  EXPECT_EQ(queue.front(now)->number, 2u) << "two levels of three";
  now += 1s;
  EXPECT_EQ(queue.front(now)->number, 1u) << "equal, and older";
}

TEST_F(FairQueueTest, AgeMakesNobodyMoreUrgentThanTheMostUrgent) {
  push({.tenant = "heavy", .priority = 1});
  queue.charge("heavy", 1);
  now += 1h;
  push({.tenant = "light", .priority = 0});
  EXPECT_EQ(queue.front(now)->tenant, "light") << "equal levels: fairness decides";
  EXPECT_EQ(queue.level(1, now - 1h, now), 0);
  EXPECT_EQ(queue.level(-3, now - 1h, now), -3) << "one that is more urgent than all that wait keeps its level";
}

TEST_F(FairQueueTest, ALevelNeedsNoQueue) {
  EXPECT_EQ(queue.level(7, now - 1h, now), 7);
  push({.priority = 5});
  EXPECT_EQ(queue.level(7, now - 10s, now), 6);
  EXPECT_EQ(queue.level(7, now + 10s, now), 7) << "from the future: no age";
  EXPECT_EQ(queue.level(INT32_MAX, now, now), INT32_MAX);
  EXPECT_EQ(queue.level(INT32_MIN, now - 1h, now), INT32_MIN);
}

TEST_F(FairQueueTest, TheLowestPriorityIsThatOfWhatWaitsNow) {
  push({.priority = -5});
  push({.priority = 3});
  now += 1h;
  EXPECT_EQ(queue.level(9, now - 1h, now), -5);
  pop();
  EXPECT_EQ(queue.level(9, now - 1h, now), 3);
  queue.erase(stream_id(2), "");
  EXPECT_EQ(queue.level(9, now - 1h, now), 9);
}

TEST_F(FairQueueTest, WithoutAgeingOnlyPriorityCounts) {
  queue = FairQueue(0s);
  push({.priority = 1});
  now += 1000h;
  push({.priority = 0});
  EXPECT_EQ(pop(), 2);
}

TEST_F(FairQueueTest, ServesTheLeastUrgentBesideAnEndlessStreamOfUrgentOnes) {
  push({.tenant = "patient", .priority = 100});
  int served = 0;
  for (std::string tenant; tenant != "patient"; ++served) {
    push({.tenant = "urgent", .priority = -100});
    push({.tenant = "urgent", .priority = -100});
    tenant = serve(10);
    now += 1s;
    ASSERT_LT(served, 200 * 10 + 2);
  }
}

TEST_F(FairQueueTest, ServesAnOldOneBesideAnEndlessStreamOfItsOwnTenant) {
  push({.priority = 1});
  for (int i = 0; i < 10; ++i, now += 1s) {
    push({.priority = 0});
    EXPECT_NE(pop(), 1);
  }
  EXPECT_EQ(pop(), 1);
}

// ---- fairness ----

TEST_F(FairQueueTest, TenantsTakeTurnsByTokensServed) {
  for (int i = 0; i < 30; ++i)
    push({.tenant = "long"});
  for (int i = 0; i < 30; ++i)
    push({.tenant = "short"});
  std::map<std::string, int> turns;
  for (int i = 0; i < 22; ++i) {
    const std::string tenant = queue.front(now)->tenant;
    serve(tenant == "long" ? 100 : 10);
    ++turns[tenant];
  }
  EXPECT_EQ(turns["long"], 2);
  EXPECT_EQ(turns["short"], 20) << "ten for one, of a tenth";
}

TEST_F(FairQueueTest, AFloodOfOneTenantDelaysAnotherByOneTurn) {
  for (int i = 0; i < 1000; ++i)
    push({.tenant = "flood", .n = 4});
  serve(50);
  push({.tenant = "light"});
  EXPECT_EQ(serve(50), "light");
  EXPECT_EQ(serve(50), "flood");
}

TEST_F(FairQueueTest, ThoseWithoutANameAreOneTenant) {
  push({.tenant = ""});
  push({.tenant = ""});
  push({.tenant = "a"});
  EXPECT_EQ(serve(10), "");
  EXPECT_EQ(serve(10), "a");
  EXPECT_EQ(serve(10), "");
}

TEST_F(FairQueueTest, ANewTenantBeginsWhereTheOthersStand) {
  for (int i = 0; i < 10; ++i)
    push({.tenant = "old"});
  for (int i = 0; i < 5; ++i)
    serve(100);
  for (int i = 0; i < 10; ++i)
    push({.tenant = "new"});
  std::string order;
  for (int i = 0; i < 6; ++i)
    order += serve(100)[0];
  EXPECT_EQ(order, "nonono") << "it has not saved up its absence";
}

TEST_F(FairQueueTest, ATenantThatWasServedMoreThanTheOthersIsNotForgivenByLeaving) {
  push({.tenant = "greedy"});
  for (int i = 0; i < 9; ++i)
    push({.tenant = "modest"});
  serve(1000);
  EXPECT_EQ(queue.service("greedy"), 0) << "it has left";
  serve(100);
  push({.tenant = "greedy"});
  EXPECT_EQ(queue.service("greedy"), 1000);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(serve(100), "modest");
  EXPECT_EQ(serve(1), "greedy");
}

TEST_F(FairQueueTest, AServedTenantThatWaitsAgainAtOnceHasGainedNothing) {
  push({.tenant = "a"});
  for (int i = 0; i < 9; ++i)
    push({.tenant = "b"});
  std::map<std::string, int> turns;
  for (int i = 0; i < 8; ++i) {
    const std::string tenant = serve(10);
    ++turns[tenant];
    if (tenant == "a")
      push({.tenant = "a"});
  }
  EXPECT_EQ(turns["a"], 4);
  EXPECT_EQ(turns["b"], 4);
}

TEST_F(FairQueueTest, WhatAnUrgentTenantWasServedIsNotHeldAgainstANewOne) {
  // Urgent requests of one tenant, much served, while two others wait.
  for (int i = 0; i < 10; ++i)
    push({.tenant = "background", .priority = 5});
  for (int i = 0; i < 10; ++i) {
    push({.tenant = "urgent", .priority = 0});
    ASSERT_EQ(serve(1000), "urgent");
  }
  push({.tenant = "new", .priority = 5});
  EXPECT_EQ(serve(100), "background");
  EXPECT_EQ(serve(100), "new") << "it begins where the least served of those that wait stands";
}

TEST_F(FairQueueTest, OneThatWasNotServedForItsLowUrgencyKeepsItsClaim) {
  push({.tenant = "patient", .priority = 5});
  for (int i = 0; i < 3; ++i) {
    push({.tenant = "urgent", .priority = 0});
    ASSERT_EQ(serve(1000), "urgent");
  }
  push({.tenant = "urgent", .priority = 5});
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(serve(100), "patient") << "after " << i * 100 << " of 3000 tokens";
    push({.tenant = "patient", .priority = 5});
  }
  EXPECT_EQ(serve(1), "urgent") << "equal, and older";
}

TEST_F(FairQueueTest, ServiceCanBeTakenBack) {
  push({.tenant = "a"});
  push({.tenant = "b"});
  queue.charge("a", 100);
  queue.charge("b", 50);
  EXPECT_EQ(queue.front(now)->tenant, "b");
  queue.charge("a", -90);
  EXPECT_EQ(queue.front(now)->tenant, "a");
  EXPECT_EQ(queue.service("a"), 10);
  EXPECT_EQ(queue.service("b"), 50);
  queue.charge("unknown", 10);
  EXPECT_EQ(queue.service("unknown"), 0);
}

// ---- who is active ----

TEST_F(FairQueueTest, ATenantIsActiveWhileItWaitsOrRuns) {
  push({.tenant = "a", .n = 2});
  push({.tenant = "b"});
  EXPECT_EQ(queue.active_tenants(), 2u);
  queue.pop(now);
  queue.add_in_device("a", 1);
  queue.pop(now);
  EXPECT_EQ(queue.active_tenants(), 2u);
  queue.pop(now);
  queue.add_in_device("a", 1);
  EXPECT_EQ(queue.active_tenants(), 1u);
  EXPECT_EQ(queue.in_device("a"), 2);
  EXPECT_EQ(queue.in_device("b"), 0);
  queue.add_in_device("a", -2);
  EXPECT_EQ(queue.active_tenants(), 0u);
  EXPECT_EQ(queue.in_device("a"), 0);
}

TEST_F(FairQueueTest, ErasesTheChoicesOfARequestAlone) {
  push({.tenant = "a", .priority = -2, .n = 3});
  push({.tenant = "a", .priority = 1});
  push({.tenant = "b", .priority = 1});
  queue.pop(now);
  queue.erase(stream_id(1), "a");
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.level(5, now - 1h, now), 1) << "nothing of the priority -2 waits any more";
  queue.erase(stream_id(1), "a");
  queue.erase(stream_id(2), "b");
  queue.erase(stream_id(2), "unknown");
  EXPECT_EQ(queue.size(), 2u);
  queue.erase(stream_id(2), "a");
  EXPECT_EQ(queue.active_tenants(), 1u);
  EXPECT_EQ(pop(), 3);
  EXPECT_TRUE(queue.empty());
}

TEST_F(FairQueueTest, ErasingIsNoService) {
  for (int i = 0; i < 3; ++i)
    push({.tenant = "a"});
  serve(100);
  queue.erase(stream_id(2), "a");
  queue.erase(stream_id(3), "a");
  push({.tenant = "b"});
  push({.tenant = "a"});
  EXPECT_EQ(serve(1), "b");
  EXPECT_EQ(queue.service("a"), 100);
}

TEST_F(FairQueueTest, RemembersOnlySoManyIdleTenants) {
  push({.tenant = "first"});
  serve(1000);
  for (int i = 0; i < 10'000; ++i) {
    push({.tenant = "client " + std::to_string(i)});
    serve(1000);
  }
  EXPECT_EQ(queue.active_tenants(), 0u);
  push({.tenant = "first"});
  EXPECT_EQ(queue.service("first"), 0) << "all were forgotten";
  push({.tenant = "client 9999"});
  EXPECT_EQ(queue.service("client 9999"), 1000) << "but those that left since";
}

} // namespace
} // namespace millrace::testing
