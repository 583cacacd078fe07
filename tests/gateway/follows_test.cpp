#include "tests/gateway/gateway_test.hpp"

#include <map>

namespace millrace::test {
namespace {

class FollowsTest : public GatewayTest {
protected:
  static Follow follow(uint8_t name, int32_t window = 256, std::vector<int64_t> from_seq = {}) {
    Follow request;
    request.request = stream(name);
    request.window = window;
    request.from_seq = std::move(from_seq);
    return request;
  }
  static Started started(uint8_t name) {
    Started event;
    event.request = stream(name);
    event.prompt_tokens = 5;
    return event;
  }
  /// When it returns, all that was sent before was handled.
  static void settle(Requester& client) { client.ask<Rejected>(Cancel{stream(99)}); }
};

TEST_F(FollowsTest, BringsAWholeStreamFromItsBeginningToItsEnd) {
  start();
  Requester client = requester(), reader = requester();
  client.ask<Ack>(generate(1));
  gateway_->publish(started(1));
  gateway_->publish(token(1, 0));

  EXPECT_EQ(reader.ask<Ack>(follow(1)).of, "follow");
  EXPECT_EQ(reader.expect<Started>().prompt_tokens, 5);
  EXPECT_EQ(reader.expect<Token>().seq, 0);
  gateway_->publish(token(1, 1)); // and goes on live
  EXPECT_EQ(reader.expect<Token>().seq, 1);
  gateway_->publish(finished(1, 2));
  gateway_->publish(done(1));
  EXPECT_EQ(reader.expect<Finished>().seq, 2);
  reader.expect<Done>();
  settle(reader); // and nothing after it
}

TEST_F(FollowsTest, BeginsWhereTheReaderWants) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1, 2));
  for (const int32_t choice : {0, 1})
    for (int64_t seq = 0; seq < 5; ++seq)
      gateway_->publish(token(1, seq, choice));

  client.ask<Ack>(follow(1, 256, {3, 5}));

  EXPECT_EQ(client.expect<Token>().seq, 3);
  EXPECT_EQ(client.expect<Token>().seq, 4);
  gateway_->publish(token(1, 5, 1));
  const Token next = client.expect<Token>();
  EXPECT_EQ(next.choice, 1);
  EXPECT_EQ(next.seq, 5);
}

TEST_F(FollowsTest, SendsNoMoreThanTheWindowUntilItIsRead) {
  start();
  Requester client = requester(), reader = requester();
  client.ask<Ack>(generate(1, 2));
  reader.ask<Ack>(follow(1, 10));
  for (int64_t seq = 0; seq < 20; ++seq)
    for (const int32_t choice : {0, 1})
      gateway_->publish(token(1, seq, choice));

  std::vector<int64_t> next(2);
  const auto read = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const Token event = reader.expect<Token>();
      EXPECT_EQ(event.seq, next[event.choice]++);
    }
  };
  read(10); // of both choices together
  settle(reader);
  reader.send(Read{stream(1), next});
  read(10);
  settle(reader);
  reader.send(Read{stream(1), {next[0] - 3, 0}}); // two of the last ten, and nothing new of the other choice
  read(2);
  settle(reader);
  reader.send(Read{stream(1), {1'000'000, 1'000'000}}); // more than was sent
  read(10);
  settle(reader);
}

TEST_F(FollowsTest, TellsTheEndWithoutCredit) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  client.ask<Ack>(follow(1, 1));
  gateway_->publish(finished(1, 0));
  gateway_->publish(done(1));

  client.expect<Finished>();
  client.expect<Done>(); // takes no credit
}

TEST_F(FollowsTest, TellsASlowReaderWhatItLost) {
  options_.stream_log_bytes = 100'000;
  start();
  Requester client = requester(), reader = requester();
  client.ask<Ack>(generate(1));
  reader.ask<Ack>(follow(1, 10));
  for (int64_t seq = 0; seq < 10; ++seq)
    gateway_->publish(token(1, seq));
  for (int64_t seq = 0; seq < 10; ++seq)
    EXPECT_EQ(reader.expect<Token>().seq, seq);
  for (int64_t seq = 10; seq < 1'000; ++seq)
    gateway_->publish(token(1, seq, 0, 0, 1'000));

  reader.send(Read{stream(1), {10}});
  const Lagging lagging = reader.expect<Lagging>();

  EXPECT_EQ(lagging.wanted_seq, 10);
  EXPECT_GT(lagging.held_seq, 500);
  for (int64_t i = 0; i < 10; ++i)
    EXPECT_EQ(reader.expect<Token>().seq, lagging.held_seq + i);
  settle(reader);
  client.send(Stats{});
  EXPECT_GE(client.expect<ServerStats>().lagging, 1);
}

TEST_F(FollowsTest, TakesTheLatestFollowOfAClient) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  gateway_->publish(token(1, 0));
  client.ask<Ack>(follow(1));
  client.expect<Token>();

  client.ask<Ack>(follow(1, 256, {0}));

  EXPECT_EQ(client.expect<Token>().seq, 0);
  gateway_->publish(token(1, 1));
  EXPECT_EQ(client.expect<Token>().seq, 1);
  settle(client); // and not twice
}

TEST_F(FollowsTest, RefusesWhatCannotBeFollowed) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  EXPECT_EQ(client.ask<Rejected>(follow(2)).error, "unknown_request");
  for (const int32_t window : {0, -1, 65'537})
    EXPECT_EQ(client.ask<Rejected>(follow(1, window)).field, "window");
  EXPECT_EQ(client.ask<Rejected>(follow(1, 1, {-1})).field, "from_seq");
  EXPECT_EQ(client.ask<Rejected>(follow(1, 1, {0, 0})).field, "from_seq");
  client.send(Read{stream(1), {5}}); // without a follow: nothing
  client.send(Read{stream(7), {5}});
  settle(client);
}

TEST_F(FollowsTest, BoundsHowManyStreamsAClientFollows) {
  start();
  Requester client = requester(zmq::socket_type::dealer, 10'000);
  Generate request = generate(1);
  int accepted = 0;
  for (int i = 0; i < 1'100; ++i) {
    std::memcpy(request.request.bytes.data(), &i, sizeof i);
    client.ask<Ack>(request);
    client.send(Follow{request.request, {}, 256});
    accepted += is<Ack>(client.next());
  }

  EXPECT_EQ(accepted, 1'024);
  Requester other = requester();
  other.send(Follow{request.request, {}, 256});
  EXPECT_TRUE(is<Ack>(other.next()));
}

TEST_F(FollowsTest, TellsThatAStreamLeftTheLog) {
  options_.log_ttl = std::chrono::milliseconds(0);
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  client.ask<Ack>(follow(1, 1));
  publish_whole(1, 5);

  std::string frame = client.next(); // the first token, if it came in time
  while (!is<Rejected>(frame))
    frame = client.next();

  EXPECT_EQ(as<Rejected>(frame).error, "unknown_request");
}

TEST_F(FollowsTest, LosesNothingForAReaderThatIsSlowWithinItsWindow) {
  constexpr int64_t kTokens = 20'000;
  options_.stream_log_bytes = 64u << 20;
  start();
  Requester client = requester(), slow = requester(zmq::socket_type::dealer, 10);
  client.ask<Ack>(generate(1));
  slow.ask<Ack>(follow(1, 4'096));
  client.ask<Ack>(follow(1, 4'096));
  publish_whole(1, kTokens, 1'000);

  const auto read_all = [&](Requester& reader) { // the other one stalls meanwhile
    int64_t next = 0;
    for (std::string frame = reader.next(); !is<Done>(frame); frame = reader.next()) {
      const int64_t seq = is<Token>(frame) ? as<Token>(frame).seq : as<Finished>(frame).seq;
      ASSERT_EQ(seq, next++);
      if (next % 1'024 == 0)
        reader.send(Read{stream(1), {next}});
    }
    EXPECT_EQ(next, kTokens + 1);
  };
  read_all(client);
  read_all(slow);
}

TEST_F(FollowsTest, DoesNotReadAheadForOneWhoStallsWheneverAnotherAsks) {
  constexpr int64_t kTokens = 8'000; // 8 MB: more than queues and kernel buffers take
  constexpr int kQuestions = 500;
  options_.stream_log_bytes = 64u << 20;
  start();
  Requester client = requester(), stalled = requester(zmq::socket_type::dealer, 1);
  client.ask<Ack>(generate(1));
  publish_whole(1, kTokens, 1'000);
  stalled.ask<Ack>(follow(1, 65'536));
  const auto replayed = [&] { return gateway_->streams().stats().replayed; };
  uint64_t before = 0;
  auto since = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&] {
    const auto now = std::chrono::steady_clock::now();
    const uint64_t count = replayed();
    if (std::exchange(before, count) != count)
      since = now;
    return before > 0 && now - since > std::chrono::milliseconds(20);
  }));

  for (int i = 0; i < kQuestions; ++i)
    settle(client);

  EXPECT_LT(replayed() - before, kQuestions) << "tries are events read";
}

TEST_F(FollowsTest, AnswersALookWithTheTextSoFar) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  gateway_->publish(started(1));
  gateway_->publish(token(1, 0));
  gateway_->publish(token(1, 1));

  const Snapshot snapshot = client.ask<Snapshot>(Look{stream(1)});

  EXPECT_EQ(snapshot.prompt_tokens, 5);
  ASSERT_EQ(snapshot.choices.size(), 1u);
  EXPECT_EQ(snapshot.choices[0].text, " token 0 token 1");
  EXPECT_EQ(snapshot.choices[0].next_seq, 2);
  client.ask<Ack>(follow(1, 256, {2}));
  client.expect<Started>();
  gateway_->publish(token(1, 2));
  EXPECT_EQ(client.expect<Token>().seq, 2);
  EXPECT_EQ(client.ask<Rejected>(Look{stream(2)}).error, "unknown_request");
}

TEST_F(FollowsTest, PublishesWhileManyLook) {
  constexpr uint8_t kLooks = 60; // each at a stream that was not looked at before
  constexpr int64_t kTokens = 3'000;
  start();
  Requester client = requester();
  client.ask<Ack>(generate(200));
  for (uint8_t name = 1; name <= kLooks; ++name) {
    client.ask<Ack>(generate(name));
    publish_whole(name, kTokens);
  }
  Subscriber reader = subscriber(200);
  reader.expect<Welcome>();
  const uint64_t before = gateway_->stats().requests;

  for (uint8_t name = 1; name <= kLooks; ++name)
    client.send(Look{stream(name)});
  ASSERT_TRUE(eventually([&] { return gateway_->stats().requests > before; }));
  gateway_->publish(token(200, 0));
  reader.expect<Token>();

  EXPECT_LT(gateway_->stats().requests, before + kLooks / 2);
}

TEST_F(FollowsTest, AnswersStats) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  EXPECT_EQ(client.ask<ServerStats>(Stats{}).log_streams, 1);
  EXPECT_EQ(client.ask<Rejected>(Stats{.max_requests = -1}).field, "max_requests");
  EXPECT_EQ(client.ask<Rejected>(Stats{.max_requests = 1'025}).field, "max_requests");
}

TEST_F(FollowsTest, ReplaysThePreambleFromTheBeginningAlone) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1, 2));
  gateway_->publish(started(1));
  Started other = started(1);
  other.choice = 1;
  gateway_->publish(other);
  PromptLogprobs scored;
  scored.request = stream(1);
  scored.tokens.resize(3);
  gateway_->publish(scored);
  gateway_->publish(token(1, 0));
  gateway_->publish(token(1, 1));

  client.send(Replay{stream(1), 0, 0});
  EXPECT_EQ(client.expect<Started>().choice, 0);
  EXPECT_EQ(client.expect<PromptLogprobs>().tokens.size(), 3u);
  EXPECT_EQ(client.expect<Token>().seq, 0);
  EXPECT_EQ(client.expect<Token>().seq, 1);
  EXPECT_EQ(client.expect<Ack>().next_seq, 2);
  client.send(Replay{stream(1), 0, 1});
  EXPECT_EQ(client.expect<Token>().seq, 1);
  EXPECT_EQ(client.expect<Ack>().from_seq, 1);
}

} // namespace
} // namespace millrace::test
