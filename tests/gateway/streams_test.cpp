#include "gateway/streams.hpp"

#include "tests/gateway/gateway_test.hpp"

#include <algorithm>
#include <thread>

namespace millrace::test {
namespace {

constexpr size_t kWhole = 1u << 30;
const std::string kBobsKey(40, 'b');
const Principal kNobody, kAlice{"curve:" + std::string(40, 'a')}, kBob{"curve:" + kBobsKey};

class StreamsTest : public testing::Test {
protected:
  void start() { streams_.emplace(options_, backend_.interface()); }

  Streams::Opened open(const Generate& request, const Principal& who = kNobody) {
    auto result = streams_->open(request, who);
    if (const auto* failure = std::get_if<Failure>(&result))
      throw std::runtime_error(failure->message);
    return std::get<Streams::Opened>(result);
  }
  Failure refused(const Generate& request, const Principal& who = kNobody) {
    return std::get<Failure>(streams_->open(request, who));
  }
  void publish_whole(uint8_t name, int64_t n) {
    for (int64_t seq = 0; seq < n; ++seq)
      streams_->publish(token(name, seq));
    streams_->publish(finished(name, n));
    streams_->publish(done(name));
  }
  static Started started(uint8_t name, int32_t choice = 0, uint32_t epoch = 0) {
    Started event;
    event.request = stream(name);
    event.choice = choice;
    event.epoch = epoch;
    event.prompt_tokens = 5;
    return event;
  }
  static PromptLogprobs prompt_logprobs(uint8_t name, int32_t position) {
    PromptLogprobs event;
    event.request = stream(name);
    event.position = position;
    event.tokens.resize(2);
    return event;
  }
  static std::string type_of(const LoggedEvent& event) {
    return read_envelope(event.body.to_string_view()).type.value_or("");
  }
  static std::vector<std::string> types_of(const Streams::Piece& piece) {
    std::vector<std::string> types;
    for (const LoggedEvent& event : piece.events)
      types.push_back(type_of(event));
    return types;
  }

  StreamsOptions options_;
  FakeBackend backend_;
  std::optional<Streams> streams_;
};

using Types = std::vector<std::string>;

TEST_F(StreamsTest, DrawsASeedWhereTheRequestHasNone) {
  start();
  Generate seeded = generate(2);
  seeded.sampling.seed = 42;

  open(generate(1));
  open(seeded);

  EXPECT_TRUE(backend_.submitted()[0].sampling.seed);
  EXPECT_EQ(backend_.submitted()[1].sampling.seed, 42u);
}

TEST_F(StreamsTest, NotesWhenARequestWasAdmittedUnlessItTells) {
  start();
  Generate timed = generate(2);
  timed.time = 42;

  open(generate(1));
  open(timed);

  EXPECT_GT(backend_.submitted()[0].time.value(), 1'600'000'000);
  EXPECT_EQ(backend_.submitted()[1].time, 42);
  EXPECT_TRUE(open(generate(1)).joined) << "the body is the same";
}

int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

TEST_F(StreamsTest, MakesAMomentOfADeadlineAndDropsAClientsOwn) {
  start();
  Generate timed = generate(1), untimed = generate(2);
  timed.deadline_ms = 5'000;
  timed.expires_at = untimed.expires_at = 42;

  const int64_t before = unix_ms();
  open(timed);
  const int64_t after = unix_ms();
  open(untimed);

  const int64_t expires_at = backend_.submitted()[0].expires_at.value();
  EXPECT_GE(expires_at, before + 5'000);
  EXPECT_LE(expires_at, after + 5'000);
  EXPECT_EQ(backend_.submitted()[1].expires_at, std::nullopt);
  EXPECT_TRUE(open(timed).joined) << "the body is the same";
}

TEST_F(StreamsTest, TakesTheTenantFromTheKeyWhereThereIsOne) {
  start();
  Generate first = generate(1), second = generate(2);
  first.tenant = second.tenant = "bob";

  open(first);
  open(second, kAlice);

  EXPECT_EQ(backend_.submitted()[0].tenant, "bob");
  EXPECT_EQ(backend_.submitted()[1].tenant, kAlice.name);
}

TEST_F(StreamsTest, LetsNobodyTakeTheNameOfAKey) {
  start();
  Generate request = generate(1);
  for (const std::string& name : {kAlice.name, std::string("http:alice")}) {
    request.tenant = name;
    EXPECT_EQ(refused(request).code, Error::invalid_field);
    EXPECT_EQ(refused(request).field, "tenant");
  }
  open(request, kAlice);
  EXPECT_EQ(backend_.submitted().at(0).tenant, kAlice.name);
}

TEST_F(StreamsTest, RefusesWhatTheLogHasNoRoomForUntilStreamsEnd) {
  options_.total_log_bytes = 10'000;
  start();
  uint8_t name = 1;
  std::optional<Failure> failure;
  for (; !failure && name < 100; ++name)
    if (auto result = streams_->open(generate(name), kNobody); std::holds_alternative<Failure>(result))
      failure = std::get<Failure>(result);

  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Error::busy);
  EXPECT_GT(failure->retry_after_ms, 0);
  const uint8_t refused = name - 1;
  EXPECT_EQ(backend_.submitted().size(), refused - 1u) << "it was not run";
  EXPECT_FALSE(streams_->contains(stream(refused)));
  publish_whole(1, 1);
  EXPECT_FALSE(open(generate(refused)).joined);
  EXPECT_LE(streams_->stats().bytes, 10'000u);
}

TEST_F(StreamsTest, JoinsTheSameBodyUnderTheSameId) {
  start();
  EXPECT_FALSE(open(generate(1)).joined);
  const auto again = open(generate(1));

  EXPECT_TRUE(again.joined);
  EXPECT_EQ(again.stream, stream(1));
  publish_whole(1, 2);
  EXPECT_TRUE(open(generate(1)).joined); // as long as it is held
  EXPECT_EQ(backend_.submitted().size(), 1u);
}

TEST_F(StreamsTest, RefusesAnotherBodyUnderTheSameId) {
  start();
  open(generate(1));
  Generate other = generate(1);
  other.sampling.seed = 1;

  EXPECT_EQ(refused(other).code, Error::conflict);
  EXPECT_EQ(refused(other).field, "request");
}

TEST_F(StreamsTest, JoinsByIdempotencyKeyUnderAnotherId) {
  start();
  Generate first = generate(1), second = generate(2), other = generate(3, 2);
  first.idempotency_key = second.idempotency_key = other.idempotency_key = "order 7";
  open(first, kAlice);

  const auto joined = open(second, kAlice);
  EXPECT_TRUE(joined.joined);
  EXPECT_EQ(joined.stream, stream(1));
  EXPECT_EQ(refused(other, kAlice).code, Error::conflict);
  EXPECT_EQ(refused(other, kAlice).field, "idempotency_key");
  EXPECT_FALSE(open(second, kBob).joined) << "keys are each principal's own";
}

TEST_F(StreamsTest, ForgetsAKeyWithItsStream) {
  options_.log_ttl = std::chrono::milliseconds(0);
  start();
  Generate first = generate(1), second = generate(2, 2);
  first.idempotency_key = second.idempotency_key = "order 7";
  open(first);
  publish_whole(1, 1);

  streams_->expire();

  EXPECT_FALSE(open(second).joined);
}

TEST_F(StreamsTest, TakesARefusedRequestOutAgain) {
  start();
  backend_.refuse_with({Error::busy, "", "full"});
  Generate request = generate(1);
  request.idempotency_key = "order 7";

  EXPECT_EQ(refused(request).code, Error::busy);
  EXPECT_FALSE(streams_->contains(stream(1)));
  EXPECT_EQ(streams_->stats().bytes, 0u);
  EXPECT_EQ(refused(request).code, Error::busy) << "and not a join of what never was";
}

TEST_F(StreamsTest, MakesNoPlaceForWhatIsOutOfRange) {
  start();
  Generate request = generate(1);
  for (const int32_t n : {0, -1, 17, std::numeric_limits<int32_t>::max()}) {
    request.n = n;
    EXPECT_EQ(refused(request).field, "n");
  }
  EXPECT_TRUE(backend_.submitted().empty());
}

TEST_F(StreamsTest, LogsWhatComesBeforeTheBackendReturns) {
  streams_.emplace(options_, Backend{.submit =
                                         [this](const Generate&) {
                                           std::thread([this] { publish_whole(1, 3); }).join();
                                           return std::optional<Failure>();
                                         },
                                     .cancel = {}});
  open(generate(1));

  Cursor cursor;
  EXPECT_EQ(streams_->read(stream(1), cursor, kWhole).events.size(), 5u);
}

TEST_F(StreamsTest, LetsADuplicateWaitForTheFirst) {
  std::optional<std::thread> second;
  std::atomic<bool> joined = false;
  streams_.emplace(options_, Backend{.submit =
                                         [&](const Generate&) {
                                           second.emplace([&] { joined = open(generate(1)).joined; });
                                           EXPECT_FALSE(joined);
                                           return std::optional<Failure>();
                                         },
                                     .cancel = {}});
  open(generate(1));
  second->join();

  EXPECT_TRUE(joined);
}

TEST_F(StreamsTest, ReadsThePreambleFirstAndTheEndLast) {
  start();
  open(generate(1, 2));
  streams_->publish(started(1, 0));
  streams_->publish(started(1, 1));
  streams_->publish(prompt_logprobs(1, 0));
  streams_->publish(prompt_logprobs(1, 2));
  streams_->publish(token(1, 0, 0));
  streams_->publish(token(1, 1, 0));
  streams_->publish(started(1, 0, 1)); // in place of the first
  streams_->publish(token(1, 0, 1));
  streams_->publish(finished(1, 1, 1));
  Finished end = finished(1, 2);
  end.epoch = 1;
  streams_->publish(end);
  streams_->publish(done(1));

  Cursor cursor;
  const auto piece = streams_->read(stream(1), cursor, kWhole);

  EXPECT_EQ(types_of(piece), (Types{"started", "prompt_logprobs", "prompt_logprobs", "started", "token",
                                    "token", "token", "finished", "finished", "done"}));
  EXPECT_EQ(as<Started>(piece.events[3].body.to_string_view()).epoch, 1u);
  EXPECT_TRUE(cursor.ended);
  EXPECT_TRUE(streams_->read(stream(1), cursor, kWhole).events.empty());
}

TEST_F(StreamsTest, GoesOnWhereACursorStands) {
  start();
  open(generate(1));
  Cursor cursor;
  Types types;
  const auto read = [&] {
    const auto piece = streams_->read(stream(1), cursor, 1);
    for (const std::string& type : types_of(piece))
      types.push_back(type);
    return piece.more;
  };
  streams_->publish(started(1));
  streams_->publish(token(1, 0));
  streams_->publish(token(1, 1));
  EXPECT_TRUE(read());
  EXPECT_TRUE(read());
  EXPECT_FALSE(read());
  streams_->publish(prompt_logprobs(1, 0));
  EXPECT_FALSE(read());
  streams_->publish(finished(1, 2));
  streams_->publish(done(1));
  EXPECT_FALSE(read());

  EXPECT_EQ(types, (Types{"started", "token", "token", "prompt_logprobs", "finished", "done"}));
  EXPECT_EQ(streams_->stats().replayed, 2u) << "what was told before the reader came";
}

TEST_F(StreamsTest, TellsAReaderWhatItHasMissed) {
  options_.stream_log_bytes = 20'000;
  start();
  open(generate(1, 2));
  for (int64_t seq = 0; seq < 100; ++seq)
    for (const int32_t choice : {0, 1})
      streams_->publish(token(1, seq, choice, 0, 1'000));

  Cursor cursor{.next = {0, 50}};
  const auto first = streams_->read(stream(1), cursor, kWhole);
  const auto second = streams_->read(stream(1), cursor, kWhole);

  ASSERT_TRUE(first.lag && second.lag);
  EXPECT_EQ(first.lag->choice, 0);
  EXPECT_EQ(first.lag->wanted, 0);
  EXPECT_EQ(first.lag->held, streams_->held(stream(1), 0)->first);
  EXPECT_EQ(first.events.at(0).seq, first.lag->held);
  EXPECT_TRUE(first.more);
  EXPECT_EQ(second.lag->choice, 1);
  EXPECT_EQ(second.lag->wanted, 50);
  EXPECT_EQ(cursor.next, (std::vector<int64_t>{100, 100}));
  EXPECT_EQ(streams_->stats().lagging, 2u);
}

TEST_F(StreamsTest, KeepsEachStreamToItsOwnerAndThoseItNames) {
  start();
  Generate request = generate(1);
  request.readers = {kBobsKey};
  open(request, kAlice);

  EXPECT_TRUE(streams_->may_read(stream(1), kAlice));
  EXPECT_TRUE(streams_->may_read(stream(1), kBob));
  EXPECT_FALSE(streams_->may_read(stream(1), kNobody));
  EXPECT_FALSE(streams_->may_read(stream(1), {"http:" + kBobsKey}));
  EXPECT_FALSE(streams_->may_read(stream(2), kAlice));
  const auto foreign = streams_->cancel(stream(1), kBob), unknown = streams_->cancel(stream(2), kBob);
  ASSERT_TRUE(foreign && unknown);
  EXPECT_EQ(foreign->code, Error::unknown_request);
  EXPECT_EQ(foreign->message, unknown->message) << "what is another's cannot be told from what is not";
  EXPECT_EQ(refused(request, kBob).code, Error::conflict) << "the same body joins its owner alone";
  EXPECT_TRUE(backend_.cancelled().empty());
  EXPECT_FALSE(streams_->cancel(stream(1), kAlice));
  EXPECT_EQ(backend_.cancelled(), std::vector{stream(1)});
}

class CountingWatcher : public Streams::Watcher {
public:
  void wake(const StreamId&) override { ++woken; }
  std::atomic<int> woken = 0;
};

TEST_F(StreamsTest, WakesWatchersUntilTheyLeaveAndWhenTheStreamGoes) {
  options_.log_ttl = std::chrono::milliseconds(0);
  start();
  open(generate(1));
  const auto stays = std::make_shared<CountingWatcher>(), leaves = std::make_shared<CountingWatcher>();
  streams_->watch(stream(1), stays);
  streams_->watch(stream(1), leaves);

  streams_->publish(token(1, 0));
  streams_->unwatch(stream(1), leaves.get());
  streams_->publish(token(1, 0)); // not taken
  streams_->publish(finished(1, 1));
  streams_->publish(done(1));
  streams_->expire();
  streams_->watch(stream(1), leaves); // too late

  EXPECT_EQ(stays->woken, 4);
  EXPECT_EQ(leaves->woken, 2);
}

TEST_F(StreamsTest, HandsAllEventsToTheDoorThatBroadcasts) {
  start();
  int signals = 0;
  streams_->attach_outbox([&] { ++signals; });
  open(generate(1));
  publish_whole(1, 3);
  std::vector<LoggedEvent> events;

  streams_->take_outbox(events);

  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[2].seq, 2);
  EXPECT_TRUE(events[4].last);
  EXPECT_EQ(signals, 1);
  streams_->take_outbox(events);
  EXPECT_TRUE(events.empty());
}

TEST_F(StreamsTest, BoundsWhatWaitsForADoorThatDoesNotCome) {
  options_.stream_log_bytes = 1u << 20;
  start();
  streams_->attach_outbox([] {});
  open(generate(1));
  publish_whole(1, 100'000); // of 1 KB with all that is charged

  for (int64_t i = 2; streams_->stats().unsent == 0 && i < 100; ++i) {
    open(generate(i));
    publish_whole(i, 100'000);
  }

  std::vector<LoggedEvent> events;
  streams_->take_outbox(events);
  EXPECT_GT(streams_->stats().unsent, 0u);
  EXPECT_TRUE(events.back().last) << "an end is always told";
}

TEST_F(StreamsTest, ShowsALateReaderTheTextSoFar) {
  start();
  open(generate(1, 2));
  streams_->publish(started(1));
  for (int64_t seq = 0; seq < 3; ++seq)
    streams_->publish(token(1, seq, 1));
  streams_->publish(finished(1, 3, 1));

  const auto snapshot = streams_->snapshot(stream(1));

  ASSERT_TRUE(snapshot);
  EXPECT_TRUE(snapshot->live);
  EXPECT_EQ(snapshot->prompt_tokens, 5);
  ASSERT_EQ(snapshot->choices.size(), 2u);
  EXPECT_EQ(snapshot->choices[0].next_seq, 0);
  EXPECT_EQ(snapshot->choices[1].first_seq, 0);
  EXPECT_EQ(snapshot->choices[1].next_seq, 4);
  EXPECT_EQ(snapshot->choices[1].text, " token 0 token 1 token 2");
  EXPECT_EQ(snapshot->choices[1].reason, "stop");
  EXPECT_FALSE(streams_->snapshot(stream(2)));
}

TEST_F(StreamsTest, CutsASnapshotToWhatAFrameHolds) {
  options_.stream_log_bytes = 64u << 20;
  start();
  open(generate(1));
  for (int64_t seq = 0; seq < 1'000; ++seq)
    streams_->publish(token(1, seq, 0, 0, 10'000));

  const auto snapshot = streams_->snapshot(stream(1));

  ASSERT_TRUE(snapshot);
  EXPECT_GT(snapshot->choices[0].first_seq, 0);
  EXPECT_EQ(snapshot->choices[0].next_seq, 1'000);
  EXPECT_EQ(snapshot->choices[0].text.size(), 10'000u * (1'000 - snapshot->choices[0].first_seq));
  EXPECT_LT(encode(*snapshot).size(), kMaxFrameBytes);
}

TEST_F(StreamsTest, ReadsAStreamOnceHoweverManyLook) {
  start();
  open(generate(1));
  int64_t seq = 0;
  for (; seq < 1'000; ++seq)
    streams_->publish(token(1, seq));

  const auto first = streams_->snapshot(stream(1));
  for (int looks = 0; looks < 10; ++looks)
    EXPECT_EQ(encode(*streams_->snapshot(stream(1))), encode(*first));
  EXPECT_EQ(streams_->stats().looked_through, 1'000u);
  streams_->publish(token(1, seq));

  EXPECT_EQ(streams_->snapshot(stream(1))->choices[0].text, first->choices[0].text + token(1, seq).text);
  EXPECT_EQ(streams_->stats().looked_through, 1'001u);
}

TEST_F(StreamsTest, ShowsOnlyWhatTheLogStillHoldsHoweverOftenOneLooked) {
  options_.stream_log_bytes = 100'000;
  start();
  open(generate(1, 2));
  const auto publish = [&](int64_t from, int64_t to) {
    for (int64_t seq = from; seq < to; ++seq) {
      streams_->publish(token(1, seq, 0));
      streams_->publish(token(1, seq, 1));
    }
  };
  const auto expect_held = [&] {
    const auto snapshot = streams_->snapshot(stream(1));
    ASSERT_TRUE(snapshot);
    for (const int32_t choice : {0, 1}) {
      const auto held = streams_->held(stream(1), choice);
      std::string text;
      for (int64_t seq = held->first; seq < held->next; ++seq)
        text += token(1, seq).text;
      EXPECT_EQ(snapshot->choices[choice].first_seq, held->first);
      EXPECT_EQ(snapshot->choices[choice].next_seq, held->next);
      EXPECT_EQ(snapshot->choices[choice].text, text);
    }
  };
  publish(0, 10);
  expect_held(); // all of it
  publish(10, 300);
  expect_held(); // some of what was read has gone
  publish(300, 5'000);
  expect_held(); // all of it, and more
  ASSERT_GT(streams_->held(stream(1), 0)->first, 1'000);
}

TEST_F(StreamsTest, ShowsNothingOfAnEarlierStreamOfTheId) {
  options_.log_ttl = std::chrono::milliseconds(0);
  start();
  open(generate(1));
  publish_whole(1, 10);
  streams_->snapshot(stream(1));
  streams_->expire();
  open(generate(1, 2));

  const auto snapshot = streams_->snapshot(stream(1));

  ASSERT_EQ(snapshot->choices.size(), 2u);
  EXPECT_EQ(snapshot->choices[0].text, "");
  EXPECT_EQ(snapshot->choices[0].next_seq, 0);
}

TEST_F(StreamsTest, AddsTheLogsNumbersToTheStats) {
  Backend backend = backend_.interface();
  backend.stats = [](int32_t max_requests) {
    ServerStats stats;
    stats.state = "serving";
    stats.requests.resize(max_requests);
    return stats;
  };
  streams_.emplace(options_, backend);
  open(generate(1));
  streams_->tell_subscriptions(7);

  const ServerStats stats = streams_->server_stats(3);
  streams_->drain();

  EXPECT_EQ(stats.requests.size(), 3u);
  EXPECT_EQ(stats.log_streams, 1);
  EXPECT_GT(stats.log_bytes, 0);
  EXPECT_EQ(stats.subscriptions, 7);
  EXPECT_EQ(stats.state, "serving");
  EXPECT_EQ(streams_->server_stats(0).state, "draining");
  EXPECT_EQ(refused(generate(2)).code, Error::draining);
  EXPECT_TRUE(open(generate(1)).joined) << "what runs may still be joined";
}

} // namespace
} // namespace millrace::test
