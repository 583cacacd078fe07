// Who waits, who runs, and who has to make room: the policy of the ledger. Its book is tested in ledger_test.cpp.

#include "actors/scheduler/ledger.hpp"
#include "tests/actors/scheduler/requests.hpp"

namespace millrace::testing {
namespace {

using namespace std::chrono_literals;

class Scheduling : public ::testing::Test {
protected:
  static SchedulerOptions small() {
    return {.max_batch_size = 2, .prefill_chunk = 1000, .max_queued_tokens = 1000, .max_queued_requests = 100};
  }
  void use(const SchedulerOptions& options) {
    ledger.emplace(options, 1000, std::ref(reader));
  }
  void SetUp() override { use(small()); }

  void admit(const Prompt& prompt, std::optional<Ledger::Time> deadline = {}) { ledger->admit(prompt, now, deadline); }
  /// The next one goes to the device and begins.
  SequenceId begin(int32_t cached = 0) {
    const Sequence sequence = ledger->next(now).value();
    ledger->started({sequence.id, cached}, now);
    emitted = int64_t(sequence.emitted_ids.size());
    return sequence.id;
  }
  /// … and has a token.
  SequenceId run() {
    const SequenceId id = begin();
    ledger->sampled(sampled(id, emitted), now);
    return id;
  }
  void end(const SequenceId& id) {
    Sampled end;
    end.sequence = id;
    end.reason = "length";
    ledger->sampled(std::move(end), now);
  }
  /// Tokens of a choice until it has so many.
  void generate(const SequenceId& id, int64_t from, int64_t to) {
    for (int64_t index = from; index < to; ++index)
      ledger->sampled(sampled(id, index), now);
  }
  /// The number of the request that is next, or 0.
  int next() {
    const auto sequence = ledger->next(now);
    return sequence ? sequence->id.request.bytes[0] : 0;
  }
  int yields() {
    const auto id = ledger->yield(now);
    return id ? id->request.bytes[0] : 0;
  }
  std::string refusal(int id) { return reader.rejected.contains(stream_id(id)) ? reader.rejected[stream_id(id)].message : ""; }

  Reader reader;
  std::optional<Ledger> ledger;
  Ledger::Time now{1h};
  int64_t emitted = 0; // by the one that began last, when it did
};

using Numbers = std::vector<int>;

// ---- room on the device ----

TEST_F(Scheduling, GivesOutNoMorePromptsThanTwoPassesRead) {
  use({.max_batch_size = 10, .prefill_chunk = 50});
  for (int id = 1; id <= 6; ++id)
    admit(prompt(id, 40));
  std::vector<SequenceId> sent;
  while (const auto sequence = ledger->next(now))
    sent.push_back(sequence->id);
  EXPECT_EQ(sent.size(), 4u) << "each counts half a chunk at most; the fourth makes it 100";
  ledger->started({sent[0]}, now);
  EXPECT_EQ(next(), 0) << "it is still to be read";
  ledger->progress({.request = sent[0].request, .choice = 0, .epoch = 0, .processed = 20, .total = 40});
  EXPECT_EQ(next(), 5);
  EXPECT_EQ(next(), 0);
  ledger->cancel(sent[1].request, now);
  EXPECT_EQ(next(), 6) << "what is cancelled is not read";
}

TEST_F(Scheduling, ATenantWithNothingOnTheDeviceNeedNotWaitForThePromptsOfOthers) {
  use({.max_batch_size = 10, .prefill_chunk = 10});
  for (int id = 1; id <= 5; ++id)
    admit(prompt(id, 40, {.tenant = "a"}));
  for (int id = 1; id <= 4; ++id)
    EXPECT_EQ(next(), id);
  EXPECT_EQ(next(), 0);
  admit(prompt(9, 40, {.tenant = "b"}));
  EXPECT_EQ(next(), 9);
  EXPECT_EQ(next(), 0);
}

TEST_F(Scheduling, FillsTheBatchAndNoMore) {
  admit(prompt(1, 10, {.n = 5}));
  const SequenceId first = run();
  run();
  EXPECT_EQ(next(), 0);
  EXPECT_EQ(ledger->totals().running, 2);
  EXPECT_EQ(ledger->totals().waiting, 3);
  end(first);
  EXPECT_EQ(next(), 1);
}

// ---- priorities ----

TEST_F(Scheduling, GivesOutTheMostUrgentFirst) {
  for (int id = 1; id <= 3; ++id)
    admit(prompt(id, 10, {.priority = 10 - id}));
  EXPECT_EQ(next(), 3);
  EXPECT_EQ(next(), 2);
}

TEST_F(Scheduling, WhatWaitsBecomesMoreUrgent) {
  admit(prompt(1, 10, {.priority = 2}));
  now += 19s;
  admit(prompt(2));
  now += 1s;
  admit(prompt(3));
  EXPECT_EQ(next(), 1) << "after 20 s it is as urgent as they, and older";
}

TEST_F(Scheduling, ARequestOfTheLeastPriorityRunsBesideAnEndlessStreamOfUrgentOnes) {
  use({.max_batch_size = 1});
  admit(prompt(1, 10, {.priority = 100, .tenant = "patient"}));
  int turns = 0;
  while (true) {
    for (int id : {2, 3})
      admit(prompt(id, 10, {.priority = -100, .tenant = "urgent"}));
    if (run().request == stream_id(1))
      break;
    for (int id : {2, 3})
      ledger->cancel(stream_id(id), now);
    reader = {};
    now += 1s;
    ASSERT_LT(++turns, 2001) << "200 levels of 10 s";
  }
  EXPECT_GT(turns, 1900);
}

// ---- tenants ----

TEST_F(Scheduling, TenantsTakeTurns) {
  use({.max_batch_size = 100, .prefill_chunk = 1000});
  for (int id = 1; id <= 4; ++id)
    admit(prompt(id, 20, {.tenant = "a"}));
  for (int id = 11; id <= 14; ++id)
    admit(prompt(id, 20, {.tenant = "b"}));
  Numbers order;
  for (int id = next(); id != 0; id = next())
    order.push_back(id);
  EXPECT_EQ(order, (Numbers{1, 11, 2, 12, 3, 13, 4, 14}));
}

TEST_F(Scheduling, LongPromptsCostTheirTenantMore) {
  use({.max_batch_size = 100, .prefill_chunk = 1000});
  for (int id = 1; id <= 3; ++id)
    admit(prompt(id, 100, {.tenant = "long"}));
  for (int id = 11; id <= 18; ++id)
    admit(prompt(id, 25, {.tenant = "short"}));
  Numbers order;
  for (int id = next(); id != 0; id = next())
    order.push_back(id);
  EXPECT_EQ(order, (Numbers{1, 11, 12, 13, 14, 2, 15, 16, 17, 18, 3})) << "equal service: the older one";
}

TEST_F(Scheduling, AGeneratedTokenCountsTwoOfAPrompt) {
  use({.max_batch_size = 1});
  admit(prompt(1, 10, {.tenant = "a"}));
  admit(prompt(11, 10, {.tenant = "b"}));
  admit(prompt(2, 10, {.tenant = "a"}));
  for (int id = 12; id <= 14; ++id)
    admit(prompt(id, 15, {.tenant = "b"}));
  const SequenceId first = begin();
  generate(first, 0, 15); // 10 + 30
  end(first);
  Numbers order;
  for (int i = 0; i < 4; ++i) {
    const SequenceId id = begin();
    order.push_back(id.request.bytes[0]);
    end(id);
  }
  EXPECT_EQ(order, (Numbers{11, 12, 13, 2})) << "10, 25, 40 and equal, where the older one goes first";
}

TEST_F(Scheduling, WhatTheCacheHeldIsNotCharged) {
  use({.max_batch_size = 1});
  admit(prompt(1, 100, {.tenant = "a"}));
  admit(prompt(11, 50, {.tenant = "b"}));
  admit(prompt(2, 10, {.tenant = "a"}));
  admit(prompt(12, 10, {.tenant = "b"}));
  end(begin(80)); // 20
  EXPECT_EQ(begin().request, stream_id(11));
  ledger->cancel(stream_id(11), now); // 50
  EXPECT_EQ(next(), 2);
}

TEST_F(Scheduling, APromptIsChargedOnceHoweverOftenItIsRead) {
  use({.max_batch_size = 1});
  admit(prompt(11, 200, {.tenant = "b"}));
  end(begin());
  admit(prompt(1, 100, {.tenant = "a"}));
  for (int i = 0; i < 3; ++i) {
    run();
    ledger->take_back();
  }
  end(run());
  admit(prompt(12, 10, {.tenant = "b"}));
  admit(prompt(2, 10, {.tenant = "a"}));
  EXPECT_EQ(next(), 2) << "108 of it were served, and 200 of the other";
}

TEST_F(Scheduling, WhatTheCacheHeldIsGivenBackOnceHoweverOftenItIsRead) {
  use({.max_batch_size = 1});
  admit(prompt(1, 100, {.tenant = "a"}));
  admit(prompt(2, 10, {.tenant = "a"}));
  for (int i = 0; i < 5; ++i) { // the device dies before the first token, again and again
    EXPECT_EQ(begin(60).request, stream_id(1));
    ledger->take_back();
  }
  const SequenceId id = begin(60); // 100 - 60, where newcomers begin
  generate(id, 0, 1);
  end(id);
  admit(prompt(11, 10, {.tenant = "b"}));
  EXPECT_EQ(next(), 11);
}

TEST_F(Scheduling, ANamedTenantHasItsShareOfTheQueueAlone) {
  admit(prompt(1, 500, {.tenant = "a"}));
  admit(prompt(2, 250, {.tenant = "a"}));
  EXPECT_EQ(refusal(2), "") << "three quarters of 1000";
  admit(prompt(3, 1, {.tenant = "a"}));
  EXPECT_EQ(refusal(3), "the tenant has 2 requests with 750 prompt tokens waiting, which is its share of the queue");
  EXPECT_EQ(reader.rejected[stream_id(3)].error, "busy");
  EXPECT_GT(reader.rejected[stream_id(3)].retry_after_ms, 0);
  admit(prompt(4, 250, {.tenant = "b"}));
  EXPECT_EQ(refusal(4), "");
  admit(prompt(5, 1, {.tenant = "b"}));
  EXPECT_EQ(refusal(5), "3 requests with 1000 prompt tokens are waiting") << "now the queue is full";
}

TEST_F(Scheduling, ATenantsShareBoundsItsRequestsToo) {
  use({.max_queued_requests = 8});
  for (int id = 1; id <= 7; ++id)
    admit(prompt(id, 1, {.tenant = "a"}));
  EXPECT_EQ(refusal(6), "");
  EXPECT_NE(refusal(7).find("6 requests with 6 prompt tokens"), std::string::npos) << refusal(7);
}

TEST_F(Scheduling, ATenantThatHasNothingWaitingMayWaitAlone) {
  admit(prompt(1, 900, {.tenant = "a"}));
  EXPECT_EQ(refusal(1), "") << "more than its share, but nothing of it waits";
  admit(prompt(2, 1, {.tenant = "a"}));
  EXPECT_NE(refusal(2), "");
  begin();
  admit(prompt(3, 900, {.tenant = "a"}));
  EXPECT_EQ(refusal(3), "") << "what runs does not wait";
}

TEST_F(Scheduling, ThoseWithoutANameHaveTheWholeQueue) {
  admit(prompt(1, 900));
  admit(prompt(2, 100));
  EXPECT_EQ(refusal(2), "");
  admit(prompt(3, 1));
  EXPECT_NE(refusal(3), "");
}

TEST_F(Scheduling, AShareIsFreeAgainOnceItsRequestsHaveBegunOrEnded) {
  for (int round = 0; round < 3; ++round) {
    admit(prompt(1, 350, {.n = 2, .tenant = "a"}));
    admit(prompt(2, 100, {.tenant = "a"}));
    EXPECT_NE(refusal(2), "") << round;
    reader = {};
    if (round == 0)
      begin();
    if (round == 1)
      ledger->take_back();
    ledger->cancel(stream_id(1), now);
    EXPECT_EQ(ledger->totals().queued_tokens, 0);
    reader = {};
  }
}

// ---- how long it would wait ----

class QueueWaitRefusal : public Scheduling {
protected:
  /// A device that begins a prompt of 10 tokens each second, of two tenants in turn, and has queues of them.
  void serve(int starts, int queued) {
    options.max_batch_size = 1;
    use(options);
    for (int i = 0; i < starts + queued; ++i)
      admit(prompt(i + 1, 10));
    for (int i = 0; i < starts; ++i) {
      end(begin());
      now += 1s;
    }
    reader = {};
  }
  SchedulerOptions options = [] {
    SchedulerOptions options = small();
    options.max_queue_wait = 10s;
    return options;
  }();
};

TEST_F(QueueWaitRefusal, RefusesWhatWouldWaitTooLong) {
  serve(10, 5);
  admit(prompt(101, 50));
  EXPECT_EQ(refusal(101), "") << "50 tokens of others and its own, at 10 a second";
  ledger->cancel(stream_id(101), now);
  admit(prompt(102, 51));
  EXPECT_EQ(refusal(102), "it would wait for about 11 s, at most 10000 ms are allowed");
  EXPECT_EQ(reader.rejected[stream_id(102)].error, "busy");
  EXPECT_GT(reader.rejected[stream_id(102)].retry_after_ms, 0);
}

TEST_F(QueueWaitRefusal, RefusesNobodyWhereItIsOff) {
  options.max_queue_wait = 0s;
  serve(10, 5);
  admit(prompt(101, 900));
  EXPECT_EQ(refusal(101), "");
}

TEST_F(QueueWaitRefusal, RefusesNobodyWhileTooLittleIsKnown) {
  serve(7, 5);
  admit(prompt(101, 900));
  EXPECT_EQ(refusal(101), "");
}

TEST_F(QueueWaitRefusal, AnEmptyQueueForgetsHowSlowItWas) {
  serve(10, 0);
  admit(prompt(101, 900));
  EXPECT_EQ(refusal(101), "") << "the time from the last start to the next says nothing of the service";
}

TEST_F(QueueWaitRefusal, ATenantWithLittleInTheQueueDoesNotWaitForAllOfIt) {
  serve(10, 20);
  admit(prompt(101, 30, {.tenant = "light"}));
  EXPECT_EQ(refusal(101), "") << "two tenants take turns: 60 tokens, not 230";
  admit(prompt(102, 40, {.tenant = "light"}));
  EXPECT_NE(refusal(102), "") << "140 tokens";
  admit(prompt(103, 1));
  EXPECT_NE(refusal(103), "");
}

TEST_F(QueueWaitRefusal, AnUrgentOneDoesNotWaitForThoseBehindIt) {
  serve(10, 20);
  admit(prompt(101, 100, {.priority = -1}));
  EXPECT_EQ(refusal(101), "");
  admit(prompt(102, 1, {.priority = -1}));
  EXPECT_NE(refusal(102), "") << "for the other urgent one it does";
}

TEST_F(QueueWaitRefusal, RefusesWhatWouldWaitForHalfOfTheTimeToItsDeadline) {
  serve(10, 5);
  admit(prompt(101, 10), now + 12s);
  EXPECT_EQ(refusal(101), "") << "it waits for 6 s";
  ledger->cancel(stream_id(101), now);
  admit(prompt(102, 10), now + 12s - 1ms);
  EXPECT_EQ(refusal(102), "it would wait for about 6 s, more than half of the time to its deadline");
  EXPECT_EQ(reader.rejected[stream_id(102)].error, "busy");
}

// ---- deadlines ----

TEST_F(Scheduling, ADeadlineEndsARequestWhereverItIs) {
  admit(prompt(1, 10, {.n = 3}), now + 5s);
  admit(prompt(2), now + 6s);
  const SequenceId running = run();
  const auto sent = ledger->next(now);
  now += 5s - 1ns;
  EXPECT_TRUE(ledger->expire(now).empty());
  now += 1ns;
  EXPECT_EQ(ledger->expire(now), (std::vector<SequenceId>{running, sent->id}));
  for (int32_t choice = 0; choice < 3; ++choice)
    EXPECT_EQ(reader.output(1, choice).reason, "deadline");
  EXPECT_EQ(reader.output(1, 0).ids.size(), 1u) << "what it had stays";
  EXPECT_TRUE(reader.done.contains(stream_id(1)));
  EXPECT_FALSE(reader.done.contains(stream_id(2)));
  EXPECT_EQ(ledger->totals().expired, 1);
  EXPECT_EQ(ledger->totals().cancelled, 0);
  EXPECT_EQ(next(), 2);
  EXPECT_EQ(next(), 0);
}

TEST_F(Scheduling, TellsTheNextDeadline) {
  EXPECT_FALSE(ledger->next_deadline());
  admit(prompt(1));
  EXPECT_FALSE(ledger->next_deadline());
  admit(prompt(2), now + 9s);
  admit(prompt(3), now + 5s);
  admit(prompt(4), now + 5s);
  EXPECT_EQ(ledger->next_deadline(), now + 5s);
  ledger->cancel(stream_id(3), now);
  EXPECT_EQ(ledger->next_deadline(), now + 5s);
  ledger->expire(now + 5s);
  EXPECT_TRUE(reader.done.contains(stream_id(4)));
  EXPECT_EQ(ledger->next_deadline(), now + 9s);
  ledger->lose_device(now);
  EXPECT_FALSE(ledger->next_deadline());
}

TEST_F(Scheduling, ARequestThatHasEndedHasNoDeadline) {
  admit(prompt(1), now + 5s);
  end(run());
  EXPECT_FALSE(ledger->next_deadline());
  EXPECT_TRUE(ledger->expire(now + 1h).empty());
  EXPECT_EQ(ledger->totals().expired, 0);
  admit(prompt(1)); // the id again, without one
  EXPECT_TRUE(ledger->expire(now + 1h).empty());
}

TEST_F(Scheduling, ADeadlineThatIsOverAlreadyEndsWhatIsAdmitted) {
  admit(prompt(1), now - 1s);
  EXPECT_TRUE(ledger->expire(now).empty());
  EXPECT_EQ(reader.output(1).reason, "deadline");
  EXPECT_EQ(ledger->totals().queued_tokens, 0);
  EXPECT_EQ(next(), 0);
}

TEST_F(Scheduling, ARefusedRequestHasNoDeadline) {
  admit(prompt(1, 900));
  admit(prompt(2, 900), now + 1s);
  EXPECT_NE(refusal(2), "");
  EXPECT_FALSE(ledger->next_deadline());
}

TEST_F(Scheduling, TheIdOfAnExpiredRequestGetsAnotherEpoch) {
  admit(prompt(1), now + 1s);
  const SequenceId old = run();
  ledger->expire(now + 1s);
  reader = {};
  admit(prompt(1));
  const SequenceId fresh = begin();
  EXPECT_EQ(fresh.epoch, old.epoch + 1);
  ledger->sampled(sampled(old, 1), now);
  EXPECT_TRUE(reader.output(1).ids.empty());
  EXPECT_EQ(ledger->stale(), 1);
}

TEST_F(Scheduling, AResumedRequestHasItsDeadline) {
  reader.output(1).ids = {0, 1};
  LocalResumption resumption{.prompt = prompt(1), .choices = {{.emitted_ids = {0, 1}, .epoch = 3, .end = {}}}};
  ledger->resume(resumption, now, now + 1s);
  EXPECT_EQ(ledger->next_deadline(), now + 1s);
  ledger->expire(now + 1s);
  EXPECT_EQ(reader.output(1).reason, "deadline");
  EXPECT_FALSE(ledger->next_deadline());
}

// ---- preempted ----

TEST_F(Scheduling, APreemptedOneGoesOnAtItsOldPlace) {
  use({.max_batch_size = 1});
  for (int id : {1, 2})
    admit(prompt(id));
  const SequenceId first = begin();
  generate(first, 0, 3);
  ledger->preempted({first, false});
  EXPECT_EQ(ledger->totals().preempted, 1);
  EXPECT_EQ(ledger->totals().yielded, 0);
  EXPECT_EQ(ledger->totals().running, 0);
  EXPECT_EQ(ledger->totals().waiting, 2);
  EXPECT_EQ(ledger->totals().queued_tokens, 20);
  const auto again = ledger->next(now);
  EXPECT_EQ(again->id, (SequenceId{stream_id(1), 0, 1}));
  EXPECT_EQ(again->emitted_ids, (std::vector<TokenId>{0, 1, 2}));
  ledger->sampled(sampled(first, 3), now);
  EXPECT_EQ(ledger->stale(), 1) << "the earlier owner has no say";
  ledger->started({again->id}, now);
  ledger->sampled(sampled(again->id, 3), now);
  EXPECT_EQ(reader.output(1).ids.size(), 4u);
}

TEST_F(Scheduling, APreemptionOfAnEarlierOwnerIsDropped) {
  admit(prompt(1));
  const SequenceId first = run();
  ledger->preempted({first, false});
  ledger->preempted({first, false});
  const SequenceId second = run();
  ledger->preempted({first, true});
  EXPECT_EQ(ledger->totals().running, 1);
  EXPECT_EQ(ledger->totals().preempted, 1);
  EXPECT_EQ(second.epoch, 1u);
  ledger->cancel(stream_id(1), now);
  ledger->preempted({second, false});
  EXPECT_EQ(ledger->totals().waiting, 0);
}

TEST_F(Scheduling, APreemptedOneCanBeCancelledWhileItWaits) {
  admit(prompt(1, 10, {.n = 2}));
  const SequenceId first = run(), second = run();
  ledger->preempted({first, false});
  EXPECT_EQ(ledger->cancel(stream_id(1), now), (std::vector<SequenceId>{second}));
  EXPECT_EQ(next(), 0);
  EXPECT_EQ(ledger->totals().queued_tokens, 0);
  EXPECT_EQ(reader.output(1, 0).reason, "cancelled");
  EXPECT_TRUE(reader.done.contains(stream_id(1)));
}

TEST_F(Scheduling, APreemptedOneDoesNotCountAgainAsARequestThatWaits) {
  use({.max_batch_size = 8, .max_queued_requests = 2});
  admit(prompt(1));
  for (int i = 0; i < 3; ++i)
    ledger->preempted({run(), false});
  EXPECT_EQ(ledger->totals().waiting, 1);
  admit(prompt(2));
  admit(prompt(3));
  EXPECT_EQ(refusal(3), "") << "two that have never begun";
  admit(prompt(4));
  EXPECT_NE(refusal(4), "");
}

TEST_F(Scheduling, ARequestThatEndedBeforeItBeganDoesNotWait) {
  use({.max_queued_requests = 1});
  for (const auto time : {0s, 1s, 2s}) {
    admit(prompt(1), now + time);
    EXPECT_EQ(refusal(1), "");
    if (time == 0s)
      ledger->cancel(stream_id(1), now);
    ledger->expire(now + time);
    reader = {};
  }
  admit(prompt(1));
  EXPECT_EQ(refusal(1), "");
}

TEST_F(Scheduling, RanksAreInTheOrderOfAdmission) {
  use({.max_batch_size = 8});
  admit(prompt(1, 10, {.n = 2, .priority = 5}));
  admit(prompt(2, 10, {.n = 2}));
  std::map<std::pair<int, int>, uint64_t> ranks;
  std::optional<SequenceId> last;
  while (const auto sequence = ledger->next(now)) {
    ranks[{sequence->id.request.bytes[0], sequence->id.choice}] = sequence->rank;
    last = sequence->id;
  }
  EXPECT_LT((ranks[{1, 0}]), (ranks[{1, 1}]));
  EXPECT_LT((ranks[{1, 1}]), (ranks[{2, 0}]));
  EXPECT_LT((ranks[{2, 0}]), (ranks[{2, 1}]));
  ledger->preempted({*last, false});
  EXPECT_EQ(ledger->next(now)->rank, (ranks[{last->request.bytes[0], last->choice}])) << "and stay";
}

// ---- making room ----

TEST_F(Scheduling, AnUrgentOneTakesThePlaceOfTheLeastUrgent) {
  use({.max_batch_size = 3});
  for (int id : {1, 2, 3})
    admit(prompt(id, 10, {.priority = id == 2 ? 9 : 5}));
  for (int i = 0; i < 3; ++i)
    run();
  EXPECT_EQ(yields(), 0) << "nothing waits";
  admit(prompt(4));
  const auto id = ledger->yield(now);
  ASSERT_TRUE(id);
  EXPECT_EQ(id->request, stream_id(2));
  EXPECT_EQ(yields(), 0) << "one at a time";
  ledger->preempted({*id, true});
  EXPECT_EQ(ledger->totals().yielded, 1);
  EXPECT_EQ(ledger->totals().preempted, 0);
  EXPECT_EQ(run().request, stream_id(4));
  EXPECT_EQ(yields(), 0) << "the least urgent waits, and those that run are more so";
}

TEST_F(Scheduling, OfEquallyUrgentOnesTheLatestYields) {
  for (int id : {1, 2})
    admit(prompt(id, 10, {.priority = 5}));
  run(), run();
  admit(prompt(3));
  EXPECT_EQ(yields(), 2);
}

TEST_F(Scheduling, NobodyYieldsToItsEqual) {
  for (int id : {1, 2})
    admit(prompt(id));
  run(), run();
  admit(prompt(3));
  admit(prompt(4, 10, {.priority = 1}));
  EXPECT_EQ(yields(), 0);
}

TEST_F(Scheduling, NobodyYieldsWhileThereIsRoom) {
  admit(prompt(1, 10, {.priority = 5}));
  run();
  admit(prompt(2));
  EXPECT_EQ(yields(), 0);
}

TEST_F(Scheduling, OneWithoutATokenDoesNotYield) {
  for (int id : {1, 2})
    admit(prompt(id, 10, {.priority = 5}));
  const SequenceId first = begin();
  begin();
  admit(prompt(3));
  EXPECT_EQ(yields(), 0) << "its prompt would be read for nothing";
  ledger->sampled(sampled(first, 0), now);
  EXPECT_EQ(yields(), 1);
}

TEST_F(Scheduling, TheNextOneYieldsOnceTheFirstHasLeftTheDevice) {
  for (const std::string way : {"yielded", "ended", "cancelled", "preempted", "taken back"}) {
    use(small());
    reader = {};
    for (int id : {1, 2})
      admit(prompt(id, 10, {.priority = 5}));
    run(), run();
    for (int id : {3, 4})
      admit(prompt(id));
    const auto first = ledger->yield(now);
    ASSERT_TRUE(first && first->request == stream_id(2)) << way;
    if (way == "yielded" || way == "preempted")
      ledger->preempted({*first, way == "yielded"});
    else if (way == "ended")
      end(*first);
    else if (way == "cancelled")
      ledger->cancel(first->request, now);
    else
      ledger->take_back();
    EXPECT_EQ(yields(), 0) << way << ": there is room";
    EXPECT_EQ(run().request, stream_id(3)) << way;
    if (way == "taken back") {
      EXPECT_EQ(run().request, stream_id(4));
      continue;
    }
    EXPECT_EQ(yields(), 1) << way;
  }
}

TEST_F(Scheduling, OneThatYieldsLetsTheOtherPassHoweverOldItIs) {
  // Both were admitted long ago; their time on the device has made them no more urgent.
  for (int id : {1, 2})
    admit(prompt(id, 10, {.priority = 5}));
  run(), run();
  now += 1h;
  admit(prompt(3));
  const auto id = ledger->yield(now);
  ASSERT_TRUE(id);
  ledger->preempted({*id, true});
  EXPECT_EQ(run().request, stream_id(3));
  EXPECT_EQ(ledger->next_deadline(), std::nullopt);
}

TEST_F(Scheduling, OneThatHasYieldedAgesOnWhileItWaits) {
  use({.max_batch_size = 1});
  admit(prompt(1, 10, {.priority = 2}));
  run();
  now += 1h;
  admit(prompt(2));
  ledger->preempted({*ledger->yield(now), true});
  end(run());
  now += 19s;
  admit(prompt(3));
  EXPECT_EQ(ledger->next(now)->id.request, stream_id(3));
  ledger->cancel(stream_id(3), now);
  now += 1s;
  admit(prompt(4));
  EXPECT_EQ(next(), 1);
}

TEST_F(Scheduling, OneThatWaitedUntilItWasUrgentDoesNotYieldToItsEqual) {
  use({.max_batch_size = 1});
  admit(prompt(1, 10, {.priority = 2}));
  now += 1h;
  admit(prompt(2));
  EXPECT_EQ(run().request, stream_id(1)) << "as urgent as the other, and older";
  EXPECT_EQ(yields(), 0);
}

TEST_F(Scheduling, ATenantWithNothingTakesThePlaceOfOneThatHasTwo) {
  use({.max_batch_size = 3});
  for (int id : {1, 2})
    admit(prompt(id, 10, {.tenant = "a"}));
  admit(prompt(3, 10, {.tenant = "c"}));
  for (int i = 0; i < 3; ++i)
    run();
  admit(prompt(4, 10, {.tenant = "b"}));
  const auto id = ledger->yield(now);
  ASSERT_TRUE(id);
  EXPECT_EQ(id->request, stream_id(2)) << "the latest of the tenant that has most";
  ledger->preempted({*id, true});
  EXPECT_EQ(run().request, stream_id(4));
  EXPECT_EQ(yields(), 0) << "each has one";
}

TEST_F(Scheduling, ATenantDoesNotTakeTheLastPlaceOfAnother) {
  admit(prompt(1, 10, {.tenant = "a"}));
  admit(prompt(2, 10, {.tenant = "b"}));
  run(), run();
  admit(prompt(3, 10, {.tenant = "c"}));
  EXPECT_EQ(yields(), 0);
}

TEST_F(Scheduling, ATenantThatHasOneTakesNoMore) {
  use({.max_batch_size = 3});
  for (int id : {1, 2})
    admit(prompt(id, 10, {.tenant = "a"}));
  admit(prompt(3, 10, {.tenant = "b"}));
  for (int i = 0; i < 3; ++i)
    run();
  admit(prompt(4, 10, {.tenant = "b"}));
  EXPECT_EQ(yields(), 0);
}

TEST_F(Scheduling, ALessUrgentTenantTakesNoPlace) {
  for (int id : {1, 2})
    admit(prompt(id, 10, {.tenant = "a"}));
  run(), run();
  admit(prompt(3, 10, {.priority = 1, .tenant = "b"}));
  EXPECT_EQ(yields(), 0);
}

TEST_F(Scheduling, NobodyYieldsToATenantThatWasServedMore) {
  // It would be next again at once, before the one that it made room for.
  admit(prompt(1, 500, {.tenant = "greedy"}));
  admit(prompt(2, 10, {.tenant = "modest"}));
  const SequenceId first = run();
  end(first);
  admit(prompt(3, 10, {.tenant = "modest"}));
  EXPECT_EQ(run().request, stream_id(2));
  EXPECT_EQ(run().request, stream_id(3));
  admit(prompt(4, 10, {.tenant = "greedy"}));
  EXPECT_EQ(yields(), 0);
  generate({stream_id(2), 0, 0}, 1, 300);
  EXPECT_EQ(yields(), 3) << "now it was served more";
  ledger->preempted({{stream_id(3), 0, 0}, true});
  EXPECT_EQ(next(), 4);
}

TEST_F(Scheduling, WhoeverYieldsWaitsBehindTheOneItMadeRoomFor) {
  // All ages, priorities and services: the sequence that is taken in after a yield is the one that wanted it.
  for (int32_t running = -2; running <= 2; ++running)
    for (int32_t waiting = -2; waiting <= 2; ++waiting)
      for (auto before : {0s, 15s, 100s})
        for (auto meanwhile : {0s, 15s, 100s})
          for (int tokens : {1, 20}) {
            use(small());
            reader = {};
            admit(prompt(9, 100, {.priority = -3, .tenant = "b"}));
            run();
            admit(prompt(1, 10, {.priority = running, .tenant = "a"}));
            now += before;
            admit(prompt(2, 10, {.priority = running, .tenant = "a"}));
            generate(run(), 1, tokens);
            end({stream_id(9), 0, 0});
            generate(run(), 1, tokens);
            now += meanwhile;
            admit(prompt(3, 10, {.priority = waiting, .tenant = "b"}));
            now += 7s;
            if (const auto id = ledger->yield(now)) {
              ledger->preempted({*id, true});
              EXPECT_EQ(ledger->next(now)->id.request, stream_id(3));
            }
          }
}

// ---- the device is lost ----

TEST_F(Scheduling, TakesBackWithoutLosingATenantsPlace) {
  admit(prompt(1, 10, {.tenant = "a"}));
  admit(prompt(3, 10, {.tenant = "b"}));
  admit(prompt(2, 10, {.tenant = "a"}));
  run(), run();
  ledger->take_back();
  EXPECT_EQ(ledger->totals().running, 0);
  EXPECT_EQ(ledger->totals().waiting, 3);
  EXPECT_EQ(ledger->totals().queued_tokens, 30);
  EXPECT_EQ(next(), 1);
  EXPECT_EQ(next(), 3);
  EXPECT_EQ(next(), 0);
}

TEST_F(Scheduling, EndsAllOnceThereIsNoDevice) {
  admit(prompt(1, 10, {.n = 3}), now + 5s);
  admit(prompt(2));
  run();
  ledger->lose_device(now);
  for (int32_t choice = 0; choice < 3; ++choice)
    EXPECT_EQ(reader.output(1, choice).error, "device_lost");
  EXPECT_TRUE(reader.done.contains(stream_id(2)));
  const auto totals = ledger->totals();
  EXPECT_EQ(totals.running + totals.waiting + totals.queued_tokens, 0);
  admit(prompt(3));
  EXPECT_EQ(reader.rejected[stream_id(3)].error, "device_lost");
  EXPECT_EQ(reader.rejected[stream_id(3)].retry_after_ms, 0);
}

// ---- resumed ones ----

TEST_F(Scheduling, AResumedRequestIsNeverBusy) {
  admit(prompt(1, 999));
  ledger->resume({.prompt = prompt(2, 900), .choices = {{}}}, now);
  EXPECT_TRUE(reader.rejected.empty());
  EXPECT_EQ(ledger->totals().queued_tokens, 1899);
}

TEST_F(Scheduling, AResumedRequestGoesOnWhereItsReadersStand) {
  Prompt given = prompt(1, 10, {.n = 3});
  Sampled end;
  end.sequence = {stream_id(1), 1, 4};
  end.reason = "stop";
  for (int32_t choice = 0; choice < 3; ++choice)
    reader.output(1, choice).ids.assign(choice == 0 ? 2 : 1, 0);
  ledger->resume({.prompt = given,
                  .choices = {{.emitted_ids = {0, 1}, .epoch = 4, .end = {}},
                              {.emitted_ids = {0}, .epoch = 4, .end = end},
                              {.emitted_ids = {0}, .finished = true, .end = {}}},
                  .scored = 3},
                 now);
  const auto sequence = ledger->next(now);
  ASSERT_TRUE(sequence);
  EXPECT_EQ(sequence->id, (SequenceId{stream_id(1), 0, 4}));
  EXPECT_EQ(sequence->emitted_ids, (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(sequence->scored, 3);
  EXPECT_FALSE(ledger->next(now));
  EXPECT_EQ(ledger->totals().queued_tokens, 10);
  EXPECT_EQ(reader.output(1, 1).reason, "stop");
  EXPECT_EQ(reader.output(1, 2).reason, "") << "its readers have the end already";
}

} // namespace
} // namespace millrace::testing
