#include "actors/scheduler/ledger.hpp"
#include "actors/backlog.hpp"
#include "actors/open_requests.hpp"
#include "actors/restart_budget.hpp"
#include "tests/actors/actor_test.hpp"

namespace millrace::testing {
namespace {

using namespace std::chrono_literals;

Prompt prompt(int id, size_t length = 10, int32_t n = 1, std::optional<int32_t> max_tokens = 8) {
  Prompt prompt;
  prompt.generate.request = stream_id(id);
  prompt.generate.n = n;
  prompt.generate.max_tokens = max_tokens;
  prompt.token_ids.assign(length, 5);
  return prompt;
}

Sampled token(const SequenceId& id, int64_t index, std::string reason = {}) {
  Sampled sampled;
  sampled.sequence = id;
  SampledToken token;
  token.sequence = id;
  token.index = index;
  token.id = TokenId(index);
  sampled.tokens.push_back(token);
  sampled.reason = std::move(reason);
  return sampled;
}

class LedgerTest : public ::testing::Test {
protected:
  Reader reader;
  SchedulerOptions options{.max_batch_size = 2, .max_queued_tokens = 40, .max_queued_requests = 4};
  Ledger ledger{options, 100, std::ref(reader)};
  Ledger::Time now{};
};

TEST_F(LedgerTest, GivesOutAsManyAsMayRun) {
  ledger.admit(prompt(1, 10, 3), now);

  const auto first = ledger.next(now), second = ledger.next(now);
  EXPECT_EQ(first->id, (SequenceId{stream_id(1), 0, 0}));
  EXPECT_EQ(second->id.choice, 1);
  EXPECT_FALSE(ledger.next(now));

  ledger.sampled(token(first->id, 0, "length"), now);
  EXPECT_EQ(ledger.next(now)->id.choice, 2);
  EXPECT_EQ(ledger.totals().running, 2);
}

TEST_F(LedgerTest, ClampsTheTokensToTheContext) {
  ledger.admit(prompt(1, 1, 1, 500), now);
  EXPECT_EQ(ledger.next(now)->max_tokens, 99);

  ledger.cancel(stream_id(1), now);
  ledger.admit(prompt(2, 99, 1, std::nullopt), now);
  EXPECT_EQ(ledger.next(now)->max_tokens, 1);
}

TEST_F(LedgerTest, RefusesWhatDoesNotFitTheQueueAndSaysWhenToComeBack) {
  ledger.admit(prompt(1, 30), now);
  ledger.admit(prompt(2, 11), now);
  EXPECT_EQ(reader.rejected[stream_id(2)].error, "busy");
  EXPECT_EQ(reader.rejected[stream_id(2)].retry_after_ms, 100);

  const auto first = ledger.next(now);
  ledger.started({first->id}, now + 7s);
  ledger.admit(prompt(3, 40), now);
  ledger.admit(prompt(4, 1), now);
  EXPECT_FALSE(reader.rejected.contains(stream_id(3)));
  EXPECT_EQ(reader.rejected[stream_id(4)].retry_after_ms, 7000);
}

TEST_F(LedgerTest, AnyRequestMayWaitAlone) {
  ledger.admit(prompt(1, 99, 4), now);

  EXPECT_TRUE(reader.rejected.empty());
  EXPECT_EQ(ledger.totals().queued_tokens, 396);
}

TEST_F(LedgerTest, BoundsTheRequestsThatWait) {
  for (int id = 1; id <= 5; ++id)
    ledger.admit(prompt(id, 1), now);

  EXPECT_EQ(reader.rejected.size(), 1u);
  EXPECT_TRUE(reader.rejected.contains(stream_id(5)));
}

TEST_F(LedgerTest, DropsAndCountsTheWordsOfAnEarlierOwner) {
  ledger.admit(prompt(1), now);
  const SequenceId old = ledger.next(now)->id;
  ledger.started({old}, now);
  ledger.sampled(token(old, 0), now);
  ledger.take_back();
  const auto again = ledger.next(now);

  ledger.sampled(token(old, 1), now);
  ledger.progress({.request = stream_id(1), .choice = 0, .epoch = 0, .processed = 3, .total = 10});
  ledger.started({old}, now);

  EXPECT_EQ(ledger.stale(), 3);
  EXPECT_EQ(again->id.epoch, 1u);
  EXPECT_EQ(again->emitted_ids, std::vector<TokenId>{0});
  ledger.sampled(token(again->id, 1, "length"), now);
  EXPECT_EQ(reader.output(1).ids.size(), 2u);
  EXPECT_TRUE(reader.done.contains(stream_id(1)));
}

TEST_F(LedgerTest, TakesBackInTheOrderOfAdmissionBeforeWhatWaits) {
  for (int id : {7, 3, 5})
    ledger.admit(prompt(id), now);
  EXPECT_EQ(ledger.next(now)->id.request, stream_id(7));
  EXPECT_EQ(ledger.next(now)->id.request, stream_id(3));

  ledger.take_back();

  EXPECT_EQ(ledger.next(now)->id.request, stream_id(7));
  EXPECT_EQ(ledger.next(now)->id.request, stream_id(3));
  EXPECT_EQ(ledger.totals().queued_tokens, 30);
}

TEST_F(LedgerTest, TellsHowLongEachPhaseTook) {
  ledger.admit(prompt(1), now);
  const SequenceId id = ledger.next(now)->id;
  ledger.started({id}, now + 2ms);
  ledger.sampled(token(id, 0), now + 5ms);
  ledger.sampled(token(id, 1, "stop"), now + 12ms);

  const Done& done = reader.done[stream_id(1)];
  EXPECT_DOUBLE_EQ(done.queue_ms, 2);
  EXPECT_DOUBLE_EQ(done.prefill_ms, 3);
  EXPECT_DOUBLE_EQ(done.decode_ms, 7);
  EXPECT_EQ(done.prompt_tokens, 10);
}

TEST_F(LedgerTest, CancelsOnlyWhatIsOpenAndNamesWhatTheDeviceHas) {
  ledger.admit(prompt(1, 10, 3), now);
  const auto first = ledger.next(now);
  ledger.next(now);
  ledger.sampled(token(first->id, 0, "stop"), now);

  const auto in_device = ledger.cancel(stream_id(1), now);

  ASSERT_EQ(in_device.size(), 1u);
  EXPECT_EQ(in_device[0].choice, 1);
  EXPECT_EQ(reader.output(1, 0).reason, "stop");
  EXPECT_EQ(reader.output(1, 1).reason, "cancelled");
  EXPECT_EQ(reader.output(1, 2).reason, "cancelled");
  EXPECT_TRUE(ledger.cancel(stream_id(1), now).empty());
  EXPECT_EQ(ledger.totals().queued_tokens, 0);
  EXPECT_FALSE(ledger.next(now));
}

TEST_F(LedgerTest, AnIdThatIsUsedAgainGetsAnotherEpoch) {
  ledger.admit(prompt(1), now);
  const SequenceId old = ledger.next(now)->id;
  ledger.cancel(stream_id(1), now);
  reader = {};

  ledger.admit(prompt(1), now);
  const SequenceId fresh = ledger.next(now)->id;
  ledger.sampled(token(old, 0), now);

  EXPECT_EQ(fresh.epoch, 1u);
  EXPECT_TRUE(reader.outputs.empty());
}

// ---- small ones ----

TEST(RestartBudget, IsFullAgainAfterItsWindow) {
  RestartBudget budget(3, 60s);
  const RestartBudget::Time start{};

  EXPECT_TRUE(budget.spend(start));
  EXPECT_TRUE(budget.spend(start + 10s));
  EXPECT_TRUE(budget.spend(start + 59s));
  EXPECT_FALSE(budget.spend(start + 59s));
  EXPECT_TRUE(budget.spend(start + 60s));
  EXPECT_FALSE(budget.spend(start + 69s));
  EXPECT_TRUE(budget.spend(start + 70s));
}

TEST(Backlog, BoundsBytesAndRequests) {
  Backlog backlog(10, 3);
  Generate large, small;
  large.prompt = std::string(100, 'x');
  small.prompt_ids = {1};

  EXPECT_TRUE(backlog.enter(large)); // alone
  EXPECT_FALSE(backlog.enter(small));
  backlog.leave(large);
  EXPECT_TRUE(backlog.enter(small));
  EXPECT_TRUE(backlog.enter(small));
  EXPECT_FALSE(backlog.enter(small)); // 12 bytes
  backlog.leave(small);
  EXPECT_TRUE(backlog.enter(Generate{}));
  EXPECT_FALSE(backlog.enter(Generate{}) && backlog.enter(Generate{}));
}

TEST(Backlog, SaysHowLongTheLastOneWaited) {
  Backlog backlog(10, 1);
  const Backlog::Time start{};
  Generate request;
  request.messages = {ChatMessage{.role = "user", .content = "Hi", .name = {}, .tool_call_id = {}, .tool_calls = {}}};

  EXPECT_TRUE(backlog.enter(request, start));
  EXPECT_FALSE(backlog.enter(request, start + 1s));
  EXPECT_EQ(backlog.retry_after(), 100ms);
  backlog.leave(request, start + 3s);
  EXPECT_EQ(backlog.retry_after(), 3s);
  EXPECT_TRUE(backlog.enter(request, start + 4s));
}

Generate open_request(int id, int32_t n = 1) {
  Generate generate;
  generate.request = stream_id(id);
  generate.n = n;
  return generate;
}

TEST(OpenRequests, RefusesAnIdThatIsInUse) {
  Reader reader;
  OpenRequests open(std::ref(reader));

  EXPECT_FALSE(open.open(open_request(1)));
  EXPECT_EQ(open.open(open_request(1))->code, Error::conflict);
  open.publish(Rejected{stream_id(1), "busy", "", "", 0});
  EXPECT_FALSE(open.open(open_request(1)));
  open.forget(stream_id(1));
  EXPECT_TRUE(open.wait_until_empty(0ms));
}

TEST(OpenRequests, EndsEveryStreamWhereItStands) {
  Reader reader;
  OpenRequests open(std::ref(reader));
  open.open(open_request(1, 3));
  open.open(open_request(2));
  Token token;
  token.request = stream_id(1);
  token.choice = 1;
  open.publish(token);
  Finished finished;
  finished.request = stream_id(1);
  finished.reason = "stop";
  open.publish(finished);

  open.refuse({Error::internal, "", ""});
  open.fail_all(Error::internal);

  EXPECT_EQ(open.open(open_request(3))->code, Error::internal);
  EXPECT_EQ(reader.output(1, 0).reason, "stop");
  EXPECT_EQ(reader.output(1, 1).error, "internal");
  EXPECT_EQ(reader.output(1, 2).error, "internal");
  EXPECT_EQ(reader.done.size(), 2u);
  EXPECT_TRUE(open.wait_until_empty(0ms));
}

TEST(OpenRequests, TellsWhatIsGoingOnInTheOrderOfOpening) {
  Reader reader;
  OpenRequests::Time now{1h};
  OpenRequests open(std::ref(reader), [&now] { return now; });
  EXPECT_FALSE(open.busy_since());
  open.open(open_request(2, 2));
  now += 1s;
  open.open(open_request(1));
  open.encoded(stream_id(1), 30);
  EXPECT_EQ(open.busy_since(), OpenRequests::Time{1h});

  Token token;
  token.request = stream_id(2);
  token.choice = 1;
  for (; token.seq < 5; ++token.seq) {
    open.publish(token);
    now += 100ms;
  }
  open.publish(Progress{.request = stream_id(1), .choice = 0, .epoch = 0, .processed = 16, .total = 30});

  const auto all = open.stats(10);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].stream, "02000000");
  EXPECT_EQ(all[0].phase, "decode");
  EXPECT_EQ(all[0].choices, 2);
  EXPECT_EQ(all[0].generated_tokens, 5);
  EXPECT_DOUBLE_EQ(all[0].age_ms, 1500);
  EXPECT_DOUBLE_EQ(all[0].tokens_per_second, 8);
  EXPECT_EQ(all[1].phase, "waiting");
  EXPECT_EQ(all[1].prompt_tokens, 30);
  EXPECT_EQ(all[1].processed_tokens, 16);
  EXPECT_EQ(open.stats(1).size(), 1u);
  EXPECT_TRUE(open.stats(0).empty());
}

} // namespace
} // namespace millrace::testing
