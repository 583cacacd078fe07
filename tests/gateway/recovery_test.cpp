// Streams that outlive the process that began them.

#include "gateway/recovery.hpp"

#include "gateway/streams.hpp"
#include "tests/gateway/gateway_test.hpp"
#include "tests/gateway/temporary_folder.hpp"

namespace millrace::test {
namespace {

class RecoveryTest : public testing::Test {
protected:
  /// A process that ends without a word.
  void start(const std::string& model = "model a") {
    streams_.reset();
    resumed_.clear();
    Backend backend = backend_.interface();
    backend.check = [this](const Generate&) { return unfit_; };
    backend.resume = [this](Resumption resumption) {
      resumed_.push_back(std::move(resumption));
      return refusal_;
    };
    StreamsOptions options;
    options.log_dir = folder_.path / "journal";
    options.log_ttl = ttl_;
    options.model_fingerprint = model;
    streams_.emplace(options, backend);
  }
  Streams::Opened open(const Generate& request) {
    return std::get<Streams::Opened>(streams_->open(request, kOwner));
  }
  std::vector<Event> read_all(uint8_t name) {
    std::vector<Event> events;
    Cursor cursor;
    for (const LoggedEvent& event : streams_->read(stream(name), cursor, 1u << 30).events)
      events.push_back(std::get<Event>(decode_event(event.body.to_string_view())));
    return events;
  }

  static inline const Principal kOwner{"curve:alice"};
  TemporaryFolder folder_;
  FakeBackend backend_;
  std::chrono::milliseconds ttl_{300'000};
  std::optional<Failure> refusal_, unfit_;
  std::vector<Resumption> resumed_;
  std::optional<Streams> streams_;
};

TEST_F(RecoveryTest, ReadsAnEndedStreamAgain) {
  start();
  Generate request = generate(1);
  request.idempotency_key = "order 7";
  open(request);
  streams_->publish(token(1, 0));
  streams_->publish(finished(1, 1));
  streams_->publish(done(1));

  start();
  streams_->resume();

  EXPECT_TRUE(resumed_.empty());
  EXPECT_FALSE(streams_->live(stream(1)));
  const auto events = read_all(1);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(std::get<Token>(events[0]).text, token(1, 0).text);
  EXPECT_TRUE(std::holds_alternative<Done>(events[2]));
  EXPECT_FALSE(streams_->may_read(stream(1), {}));
  request.request = stream(2);
  EXPECT_EQ(open(request).stream, stream(1)) << "its key is known, too";
}

TEST_F(RecoveryTest, GoesOnWithAStreamThatHadNotEnded) {
  start();
  Generate request = generate(1, 2);
  request.readers = {std::string(40, 'b')};
  request.priority = -3;
  request.deadline_ms = 60'000;
  request.cache_salt = "s";
  open(request);
  const uint64_t seed = backend_.submitted().at(0).sampling.seed.value();
  const int64_t time = backend_.submitted().at(0).time.value();
  const int64_t expires_at = backend_.submitted().at(0).expires_at.value();
  Started started;
  started.request = stream(1);
  started.epoch = 2;
  started.prompt_tokens = 5;
  streams_->publish(started);
  PromptLogprobs scored;
  scored.request = stream(1);
  scored.epoch = 2;
  scored.tokens.resize(5);
  streams_->publish(scored);
  for (int64_t seq = 0; seq < 3; ++seq)
    streams_->publish(token(1, seq, 0, 2));
  streams_->publish(finished(1, 0, 1));

  start();
  EXPECT_TRUE(streams_->live(stream(1)));
  EXPECT_EQ(streams_->next_seqs(stream(1)), (std::vector<int64_t>{3, 1}));
  EXPECT_TRUE(resumed_.empty());
  streams_->resume();

  ASSERT_EQ(resumed_.size(), 1u);
  const Resumption& resumption = resumed_[0];
  EXPECT_EQ(resumption.generate.sampling.seed, seed);
  EXPECT_EQ(resumption.generate.time, time);
  EXPECT_EQ(resumption.generate.expires_at, expires_at) << "the restart does not put it off";
  EXPECT_EQ(resumption.generate.priority, -3);
  EXPECT_EQ(resumption.generate.tenant, kOwner.name);
  EXPECT_EQ(resumption.generate.cache_salt, "s");
  EXPECT_EQ(resumption.generate.readers, request.readers);
  EXPECT_EQ(resumption.scored, 5);
  ASSERT_EQ(resumption.choices.size(), 2u);
  EXPECT_EQ(resumption.choices[0].emitted_ids, (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(resumption.choices[0].next_epoch, 3u);
  EXPECT_FALSE(resumption.choices[0].finished);
  EXPECT_TRUE(resumption.choices[1].finished);
  EXPECT_TRUE(open(request).joined);
  streams_->publish(token(1, 3, 0, 3));
  start(); // and once more
  EXPECT_EQ(streams_->next_seqs(stream(1)), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(streams_->snapshot(stream(1))->prompt_tokens, 5);
}

TEST_F(RecoveryTest, LeavesWhatRunsAtTheEndToTheNextProcess) {
  start();
  open(generate(1));
  streams_->publish(token(1, 0));
  streams_->detach();
  streams_->publish(finished(1, 1)); // a pipeline that is stopped cancels what it has
  streams_->publish(done(1));
  EXPECT_EQ(read_all(1).size(), 1u);

  start();
  streams_->drain(); // asked to end before it went on with anything
  streams_->resume();
  EXPECT_TRUE(resumed_.empty());

  start();
  streams_->resume();
  ASSERT_EQ(resumed_.size(), 1u);
  EXPECT_EQ(resumed_[0].choices[0].emitted_ids.size(), 1u);
}

TEST_F(RecoveryTest, CancelsWhatWasCancelledBeforeItWentOn) {
  start();
  open(generate(1));
  open(generate(2));

  start();
  EXPECT_FALSE(streams_->cancel(stream(1), kOwner));
  const size_t before = backend_.cancelled().size(); // too early for the pipeline, which does not know it yet
  streams_->resume();

  EXPECT_EQ(resumed_.size(), 2u);
  ASSERT_EQ(backend_.cancelled().size(), before + 1);
  EXPECT_EQ(backend_.cancelled().back(), stream(1));
}

TEST_F(RecoveryTest, EndsAStreamOfAnotherModel) {
  start();
  open(generate(1, 2));
  streams_->publish(token(1, 0));
  streams_->publish(finished(1, 0, 1));

  start("model b");
  streams_->resume();

  EXPECT_TRUE(resumed_.empty());
  const auto events = read_all(1);
  ASSERT_EQ(events.size(), 4u);
  const auto& end = std::get<Finished>(events[2]);
  EXPECT_EQ(end.choice, 0);
  EXPECT_EQ(end.seq, 1);
  EXPECT_EQ(end.reason, "error");
  EXPECT_EQ(end.error, "unsupported");
  EXPECT_EQ(std::get<Done>(events[3]).generated_tokens, 1);
}

TEST_F(RecoveryTest, EndsAStreamThatTheBackendRefuses) {
  start();
  open(generate(1));
  refusal_ = {Error::busy, "", "full"};

  start();
  streams_->resume();

  EXPECT_EQ(std::get<Finished>(read_all(1).at(0)).error, "busy");
  EXPECT_FALSE(streams_->live(stream(1)));
  start();
  streams_->resume();
  EXPECT_TRUE(resumed_.empty()) << "its end is on disk";
}

TEST_F(RecoveryTest, ForgetsARefusedRequestAndAnExpiredStream) {
  ttl_ = std::chrono::milliseconds(0);
  start();
  open(generate(1));
  streams_->publish(finished(1, 0));
  streams_->publish(done(1));
  streams_->expire();
  backend_.refuse_with({Error::busy, "", "full"});
  EXPECT_TRUE(std::holds_alternative<Failure>(streams_->open(generate(2), kOwner)));

  ttl_ = std::chrono::hours(1);
  start();

  EXPECT_EQ(streams_->stats().streams, 0u);
}

TEST_F(RecoveryTest, WritesNothingOfARequestThatTheModelCannotTake) {
  start();
  unfit_ = {Error::invalid_field, "sampling.logit_bias", "no such token"};

  const auto refused = streams_->open(generate(1), kOwner);

  EXPECT_EQ(std::get<Failure>(refused).code, Error::invalid_field);
  EXPECT_TRUE(backend_.submitted().empty());
  for (const auto& file : std::filesystem::directory_iterator(folder_.path / "journal"))
    EXPECT_EQ(file.path().filename(), "lock");
  unfit_.reset();
  open(generate(1)); // its id is free
}

// ---- the journal may lack events ----

TEST(Recovery, TakesNothingBeyondAGapUntilItIsFilled) {
  Recovery recovery(generate(1), "");
  EXPECT_TRUE(recovery.take(token(1, 0)));
  EXPECT_FALSE(recovery.take(token(1, 2))); // 1 is lost
  EXPECT_FALSE(recovery.take(finished(1, 3)));
  EXPECT_FALSE(recovery.take(done(1))) << "readers lack what comes before";
  EXPECT_FALSE(recovery.ended());

  // The next process drew them again.
  EXPECT_TRUE(recovery.take(token(1, 1)));
  EXPECT_TRUE(recovery.take(token(1, 2)));
  EXPECT_TRUE(recovery.take(finished(1, 3)));
  EXPECT_TRUE(recovery.take(done(1)));
  EXPECT_TRUE(recovery.ended());
  EXPECT_EQ(recovery.resumption().choices[0].emitted_ids.size(), 3u);
}

TEST(Recovery, TakesNoForeignChoiceAndNothingAfterTheEnd) {
  Recovery recovery(generate(1), "");
  EXPECT_FALSE(recovery.take(token(1, 0, 1)));
  EXPECT_FALSE(recovery.take(token(1, 0, -1)));
  Rejected rejected;
  rejected.request = stream(1);
  EXPECT_TRUE(recovery.take(rejected));
  EXPECT_FALSE(recovery.take(token(1, 0)));
}

} // namespace
} // namespace millrace::test
