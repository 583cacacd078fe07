#include "actors/scheduler/admission.hpp"
#include "actors/scheduler/cancelled_ahead.hpp"
#include "actors/scheduler/make_sequence.hpp"
#include "tests/actors/scheduler/requests.hpp"

#include <set>

namespace millrace::testing {
namespace {

using namespace std::chrono_literals;

// ---- what may wait ----

TEST(Admission, BoundsTheSizeOfWhatWaits) {
  Admission admission(10, 100);
  admission.add_size(4);
  EXPECT_TRUE(admission.admits(6));
  EXPECT_FALSE(admission.admits(7));
  admission.remove_size(1);
  EXPECT_TRUE(admission.admits(7));
  EXPECT_EQ(admission.size(), 3);
}

TEST(Admission, AnySizeMayWaitAlone) {
  Admission admission(10, 100);
  EXPECT_TRUE(admission.admits(1'000'000));
  admission.add_size(1'000'000);
  EXPECT_FALSE(admission.admits(1));
  admission.remove_size(1'000'000);
  EXPECT_TRUE(admission.admits(1'000'000));
}

TEST(Admission, BoundsTheRequestsThatWait) {
  Admission admission(10, 2);
  admission.add_request();
  EXPECT_TRUE(admission.admits(1));
  admission.add_request();
  EXPECT_FALSE(admission.admits(1));
  admission.remove_request();
  EXPECT_TRUE(admission.admits(1));
  EXPECT_EQ(admission.requests(), 1);
}

TEST(Admission, SaysToComeBackAfterAsLongAsTheLastOneWaited) {
  Admission admission(1, 1);
  EXPECT_EQ(admission.retry_after(), 100ms) << "nobody has waited yet";
  admission.note_wait(2500us + 1s);
  EXPECT_EQ(admission.retry_after(), 1003ms) << "rounded up";
  admission.note_wait(1us);
  EXPECT_EQ(admission.retry_after(), 100ms);
  admission.note_wait(2h);
  EXPECT_EQ(admission.retry_after(), 60s);
}

// ---- how long it waits ----

TEST(QueueWait, KnowsNothingAtFirst) {
  QueueWait wait;
  const QueueWait::Time start{};
  for (int i = 0; i < 7; ++i) {
    wait.note_start(10, start + i * 1s);
    EXPECT_FALSE(wait.until(1));
  }
  wait.note_start(10, start + 7s);
  EXPECT_EQ(wait.until(10), 1s);
}

TEST(QueueWait, IsProportionalToTheTokensAndToThePaceOfService) {
  QueueWait wait;
  QueueWait::Time now{};
  for (int i = 0; i < 20; ++i)
    wait.note_start(100, now += 2s);
  EXPECT_EQ(wait.until(0), 0s);
  EXPECT_EQ(wait.until(50), 1s);
  EXPECT_EQ(wait.until(1'000'000), 20'000s);
}

TEST(QueueWait, CountsTheTokensBetweenTheFirstAndTheLastStart) {
  QueueWait wait;
  QueueWait::Time now{};
  wait.note_start(1'000'000, now); // served before the time that is measured
  for (int i = 0; i < 7; ++i)
    wait.note_start(10, now += 1s);
  EXPECT_EQ(wait.until(10), 1s);
}

TEST(QueueWait, ForgetsOldStarts) {
  QueueWait wait;
  QueueWait::Time now{};
  for (int i = 0; i < 100; ++i)
    wait.note_start(1, now += 1h);
  for (int i = 0; i < 64; ++i)
    wait.note_start(1, now += 1s);
  EXPECT_EQ(wait.until(1), 1s);
}

TEST(QueueWait, TheTimeInWhichNothingWaitedIsNotServiceTime) {
  QueueWait wait;
  QueueWait::Time now{};
  for (int i = 0; i < 10; ++i)
    wait.note_start(10, now += 1s);
  wait.forget();
  EXPECT_FALSE(wait.until(10));
  now += 24h;
  for (int i = 0; i < 8; ++i)
    wait.note_start(10, now += 1s);
  EXPECT_EQ(wait.until(10), 1s);
}

TEST(QueueWait, StartsAtOneMomentPromiseNoWait) {
  QueueWait wait;
  for (int i = 0; i < 8; ++i)
    wait.note_start(10, QueueWait::Time{});
  EXPECT_EQ(wait.until(1'000), 0s);
}

// ---- what is cancelled on its way ----

SequenceId sequence(int id, uint32_t epoch = 0) { return {stream_id(id), 0, epoch}; }

TEST(CancelledAhead, TellsSinceWhichPass) {
  CancelledAhead cancelled;
  cancelled.add(sequence(1), 17);
  EXPECT_EQ(cancelled.find(sequence(1)), 17);
  EXPECT_FALSE(cancelled.find(sequence(2)));
  EXPECT_FALSE(cancelled.find(sequence(1, 1))) << "another epoch is another sequence";
  EXPECT_FALSE(cancelled.find({stream_id(1), 1, 0}));
}

TEST(CancelledAhead, KeepsTheFirstWord) {
  CancelledAhead cancelled;
  cancelled.add(sequence(1), 17);
  cancelled.add(sequence(1), 20);
  EXPECT_EQ(cancelled.find(sequence(1)), 17);
}

TEST(CancelledAhead, KeepsTheLatestOnes) {
  CancelledAhead cancelled;
  for (int id = 0; id < 1025; ++id)
    for (int again = 0; again < 2; ++again)
      cancelled.add(sequence(id), id);
  EXPECT_FALSE(cancelled.find(sequence(0)));
  for (int id = 1; id < 1025; ++id)
    ASSERT_EQ(cancelled.find(sequence(id)), id);
  cancelled.add(sequence(0), 5000); // one that was forgotten is new
  EXPECT_EQ(cancelled.find(sequence(0)), 5000);
  EXPECT_FALSE(cancelled.find(sequence(1)));
}

// ---- what the device is given ----

TEST(MakeSequence, ClampsTheTokensToTheContext) {
  Generate generate;
  generate.max_tokens = 5;
  EXPECT_EQ(token_limit(generate, 90, 100), 5);
  EXPECT_EQ(token_limit(generate, 97, 100), 3);
  generate.max_tokens.reset();
  EXPECT_EQ(token_limit(generate, 1, 100), 99);
  generate.max_tokens = 0;
  EXPECT_EQ(token_limit(generate, 1, 100), 0);
}

TEST(MakeSequence, CarriesAllThatSamplingNeeds) {
  Prompt given = prompt(7, 12, {.n = 2, .max_tokens = 30, .tenant = "ours"});
  given.generate.sampling.seed = 99;
  given.generate.stop = {"END"};
  given.generate.stop_ids = {4};
  given.generate.ignore_eos = true;
  given.generate.logprobs = 3;
  given.generate.cache_salt = "salt";
  const Sequence made = make_sequence(given, {stream_id(7), 1, 5}, {8, 9}, 100);

  EXPECT_EQ(made.id, (SequenceId{stream_id(7), 1, 5}));
  EXPECT_EQ(made.prompt_ids, given.token_ids);
  EXPECT_EQ(made.emitted_ids, (std::vector<TokenId>{8, 9}));
  EXPECT_EQ(made.max_tokens, 30);
  EXPECT_EQ(made.sampling.seed, 99u);
  EXPECT_EQ(made.stop, given.generate.stop);
  EXPECT_EQ(made.stop_ids, given.generate.stop_ids);
  EXPECT_TRUE(made.ignore_eos);
  EXPECT_EQ(made.logprobs, 3);
  EXPECT_EQ(made.salt, salt_of(given.generate));
}

TEST(MakeSequence, OnlyTheFirstChoiceScoresThePrompt) {
  Prompt given = prompt(7);
  given.generate.prompt_logprobs = 2;
  EXPECT_EQ(make_sequence(given, {stream_id(7), 0, 0}, {}, 100).prompt_logprobs, 2);
  EXPECT_FALSE(make_sequence(given, {stream_id(7), 1, 0}, {}, 100).prompt_logprobs);
}

TEST(MakeSequence, NoTwoPairsOfTenantAndSaltShareBlocks) {
  std::set<std::string> salts;
  size_t pairs = 0;
  for (const char* tenant : {"", "1", "a", "ab", "a:", "1:a", "10:", "0123456789"})
    for (const char* salt : {"", "1", "b", ":b", "b:1", "0:", ":"}) {
      Generate generate;
      generate.tenant = tenant;
      generate.cache_salt = salt;
      salts.insert(salt_of(generate));
      ++pairs;
    }
  EXPECT_EQ(salts.size(), pairs);
}

} // namespace
} // namespace millrace::testing
