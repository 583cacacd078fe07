#include "tests/gateway/gateway_test.hpp"

#include <map>
#include <thread>

namespace millrace::test {
namespace {

using StreamTest = GatewayTest;

/// What a replay brought: bodies by seq, whether the stream's end came, and the Ack.
struct Replayed {
  std::map<int64_t, std::string> events;
  bool done = false;
  Ack ack;
};

Replayed read_replay(Requester& requester) {
  Replayed replayed;
  for (;;) {
    const std::string frame = requester.next();
    if (is<Token>(frame))
      EXPECT_TRUE(replayed.events.emplace(as<Token>(frame).seq, frame).second) << "sent twice";
    else if (is<Finished>(frame))
      EXPECT_TRUE(replayed.events.emplace(as<Finished>(frame).seq, frame).second) << "sent twice";
    else if (is<Done>(frame))
      replayed.done = true;
    else {
      replayed.ack = as<Ack>(frame);
      return replayed;
    }
  }
}

bool contiguous(const std::map<int64_t, std::string>& events, int64_t first, int64_t next) {
  return static_cast<int64_t>(events.size()) == next - first && events.begin()->first == first &&
         events.rbegin()->first == next - 1;
}

TEST_F(StreamTest, WelcomesThenAcknowledgesThenPublishesInOrder) {
  start();
  Subscriber reader = subscriber(1);
  const Delivered welcome = reader.next();
  EXPECT_EQ(welcome.topic, stream(1));
  EXPECT_EQ(welcome.seq, -1);
  EXPECT_EQ(as<Welcome>(welcome.body).version, kProtocolVersion);
  EXPECT_FALSE(as<Welcome>(welcome.body).live);

  Requester client = requester();
  const Ack ack = client.ask<Ack>(generate(1));
  EXPECT_EQ(ack.request, stream(1));
  EXPECT_EQ(ack.of, "generate");
  ASSERT_EQ(backend_.submitted().size(), 1u);
  EXPECT_EQ(backend_.submitted()[0].prompt, "Once upon a time");

  Started started;
  started.request = stream(1);
  gateway_->publish(started);
  publish_whole(1, 3);
  EXPECT_EQ(reader.expect<Started>().request, stream(1));
  for (int64_t seq = 0; seq < 3; ++seq) {
    const Delivered event = reader.next();
    EXPECT_EQ(event.seq, seq);
    EXPECT_EQ(event.choice, 0);
    EXPECT_EQ(as<Token>(event.body).text, token(1, seq).text);
  }
  EXPECT_EQ(reader.next().seq, 3);
  const Delivered last = reader.next();
  EXPECT_EQ(last.seq, -1);
  EXPECT_EQ(as<Done>(last.body).request, stream(1));
}

TEST_F(StreamTest, WelcomesBothOfTwoSubscribersOfATopic) {
  start();
  Subscriber first = subscriber(1);
  first.expect<Welcome>();
  Subscriber second = subscriber(1);

  second.expect<Welcome>();
  first.expect<Welcome>(); // and the first hears of the second, which is harmless
}

TEST_F(StreamTest, TellsALateSubscriberWhatComesNextLive) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1, 2));
  Subscriber early = subscriber(1);
  early.expect<Welcome>();
  gateway_->publish(token(1, 0, 0));
  gateway_->publish(token(1, 1, 0));
  gateway_->publish(token(1, 0, 1));
  for (int i = 0; i < 3; ++i)
    early.next();

  Subscriber late = subscriber(1);
  const Welcome welcome = late.expect<Welcome>();

  EXPECT_TRUE(welcome.live);
  EXPECT_EQ(welcome.next_seq, (std::vector<int64_t>{2, 1}));
  gateway_->publish(token(1, 2, 0));
  EXPECT_EQ(late.next().seq, 2);
}

TEST_F(StreamTest, ReplaysFromTheBeginningForALateSubscriber) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  for (int64_t seq = 0; seq < 700; ++seq) // more than one piece
    gateway_->publish(token(1, seq));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == 700; }));
  Subscriber late = subscriber(1);
  late.expect<Welcome>();
  Requester other = requester();
  other.send(Replay{stream(1), 0, 0});

  const Replayed replayed = read_replay(other);

  EXPECT_TRUE(contiguous(replayed.events, 0, 700));
  EXPECT_EQ(replayed.ack.of, "replay");
  EXPECT_EQ(replayed.ack.from_seq, 0);
  EXPECT_EQ(replayed.ack.next_seq, 700);
  EXPECT_FALSE(replayed.done);
  EXPECT_EQ(as<Token>(replayed.events.at(42)).text, token(1, 42).text);
}

TEST_F(StreamTest, TellsAReplayThatTheStreamIsOver) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  publish_whole(1, 5);
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == 7; }));
  client.send(Replay{stream(1), 0, 3});

  const Replayed replayed = read_replay(client);

  EXPECT_TRUE(contiguous(replayed.events, 3, 6));
  EXPECT_TRUE(replayed.done);
  EXPECT_EQ(replayed.ack.from_seq, 3);
  EXPECT_EQ(replayed.ack.next_seq, 6);
}

TEST_F(StreamTest, ReplaysNothingBeyondTheEnd) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  gateway_->publish(token(1, 0));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == 1; }));
  client.send(Replay{stream(1), 0, 1'000});

  const Replayed replayed = read_replay(client);

  EXPECT_TRUE(replayed.events.empty());
  EXPECT_EQ(replayed.ack.from_seq, 1);
  EXPECT_EQ(replayed.ack.next_seq, 1);
}

TEST_F(StreamTest, TellsAReplayWhatTheLogStillHolds) {
  options_.stream_log_bytes = 100'000;
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  for (int64_t seq = 0; seq < 200; ++seq)
    gateway_->publish(token(1, seq, 0, 0, 1'000));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == 200; }));
  client.send(Replay{stream(1), 0, 10});

  const Replayed replayed = read_replay(client);

  EXPECT_GT(replayed.ack.from_seq, 10);
  EXPECT_TRUE(contiguous(replayed.events, replayed.ack.from_seq, 200));
}

TEST_F(StreamTest, RepairsWhatAStalledSubscriberLost) {
  constexpr int64_t kTokens = 20'000;
  options_.stream_log_bytes = 64u << 20;
  options_.subscriber_queue = 100;
  start();
  Subscriber reader = subscriber({bytes_of(stream(1))}, {.messages = 10, .bytes = 4'096});
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  publish_whole(1, kTokens, 1'000); // nobody reads meanwhile
  ASSERT_TRUE(eventually([&] { return gateway_->stats().sent == kTokens + 2; }));
  std::map<int64_t, std::string> seen;
  while (auto event = reader.next_within(std::chrono::milliseconds(300))) {
    if (event->seq >= 0) {
      EXPECT_TRUE(seen.emplace(event->seq, std::move(event->body)).second) << "published twice";
    }
  }
  EXPECT_LT(seen.size(), kTokens / 2u) << "nothing was dropped: the test tests nothing";
  EXPECT_GT(seen.size(), 0u);

  int64_t expected = 0; // the first that is missing
  for (auto event = seen.begin(); event != seen.end() && event->first == expected; ++event)
    ++expected;
  client.send(Replay{stream(1), 0, expected});
  Replayed replayed = read_replay(client);
  for (auto& [seq, body] : replayed.events) {
    const auto [event, repaired] = seen.emplace(seq, body);
    EXPECT_EQ(event->second, body) << "the log and the topic differ at " << seq;
  }

  EXPECT_TRUE(contiguous(seen, 0, kTokens + 1));
  EXPECT_TRUE(replayed.done);
}

TEST_F(StreamTest, ServesASubscriberThatCameBack) {
  start();
  Requester client = requester();
  std::map<int64_t, std::string> seen;
  {
    Subscriber reader = subscriber(1);
    reader.expect<Welcome>();
    client.ask<Ack>(generate(1));
    for (int64_t seq = 0; seq < 10; ++seq)
      gateway_->publish(token(1, seq));
    for (int i = 0; i < 5; ++i) {
      Delivered event = reader.next();
      seen.emplace(event.seq, event.body);
    }
  } // dies with half of it unread
  for (int64_t seq = 10; seq < 20; ++seq)
    gateway_->publish(token(1, seq));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == 20; }));

  Subscriber reader = subscriber(1);
  EXPECT_EQ(reader.expect<Welcome>().next_seq, std::vector<int64_t>{20});
  Requester again = requester();
  again.send(Replay{stream(1), 0, 5});
  seen.merge(read_replay(again).events);
  gateway_->publish(finished(1, 20));
  Delivered event = reader.next();
  seen.emplace(event.seq, event.body);

  EXPECT_TRUE(contiguous(seen, 0, 21));
}

TEST_F(StreamTest, ReplaysToASlowReaderWithoutDelayForOthers) {
  constexpr int64_t kTokens = 20'000;
  options_.stream_log_bytes = 64u << 20;
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  for (int64_t seq = 0; seq < kTokens; ++seq)
    gateway_->publish(token(1, seq, 0, 0, 1'000));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == kTokens; }));

  Requester slow = requester(zmq::socket_type::dealer, 10);
  slow.send(Replay{stream(1), 0, 0});
  slow.send(Cancel{stream(9)});
  ASSERT_TRUE(eventually([&] { return gateway_->stats().requests == 3; }));
  gateway_->publish(finished(1, kTokens)); // ends while the slow one's replay waits
  gateway_->publish(done(1));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == kTokens + 2; }));
  for (int i = 0; i < 100; ++i)
    client.ask<Rejected>(Cancel{stream(9)});
  client.send(Replay{stream(1), 0, 0});
  const Replayed whole = read_replay(client);
  EXPECT_TRUE(contiguous(whole.events, 0, kTokens + 1));
  EXPECT_TRUE(whole.done);

  const Replayed replayed = read_replay(slow);
  EXPECT_TRUE(contiguous(replayed.events, 0, kTokens));
  EXPECT_EQ(replayed.ack.next_seq, kTokens);
  EXPECT_FALSE(replayed.done);                                 // it has not been told of Finished
  EXPECT_EQ(slow.expect<Rejected>().error, "unknown_request"); // in the order of the questions
}

TEST_F(StreamTest, PublishesOnlyTheCurrentOwnersNextEvent) {
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  gateway_->publish(token(1, 0));
  gateway_->publish(token(1, 0)); // again
  gateway_->publish(token(1, 2)); // a gap
  Started restarted;
  restarted.request = stream(1);
  restarted.epoch = 1;
  gateway_->publish(restarted);
  gateway_->publish(token(1, 1, 0, 0)); // of the old owner
  gateway_->publish(token(1, 1, 0, 1));
  gateway_->publish(token(2, 0)); // of no stream
  gateway_->publish(done(1));
  gateway_->publish(done(1));

  EXPECT_EQ(reader.next().seq, 0);
  EXPECT_EQ(reader.expect<Started>().epoch, 1u);
  const Delivered second = reader.next();
  EXPECT_EQ(second.seq, 1);
  EXPECT_EQ(second.epoch, 1u);
  reader.expect<Done>();
  ASSERT_TRUE(eventually([&] { return gateway_->stats().unexpected_events == 2; }));
  EXPECT_EQ(gateway_->stats().out_of_order_events, 2u);
  EXPECT_EQ(gateway_->stats().stale_events, 1u);
}

TEST_F(StreamTest, SendsHeartbeatsOnASilentStream) {
  options_.heartbeat = std::chrono::milliseconds(10);
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1, 2));
  gateway_->publish(token(1, 0, 1));

  for (int found = 0; found < 2;)
    if (const Delivered event = reader.next(); is<Heartbeat>(event.body) && event.seq == -1)
      found += as<Heartbeat>(event.body).next_seq == std::vector<int64_t>{0, 1};
  gateway_->publish(done(1));
  while (!is<Done>(reader.next().body)) {
  }
  reader.subscribe(bytes_of(stream(2)));
  EXPECT_EQ(reader.expect<Welcome>().request, stream(2)); // no heartbeat after the end
}

TEST_F(StreamTest, ForgetsAnEndedStreamAfterItsTime) {
  options_.log_ttl = std::chrono::milliseconds(0);
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  publish_whole(1, 2);

  EXPECT_TRUE(eventually([&] {
    return !client.ask<Ack>(generate(1)).joined; // until then it joins
  }));
}

TEST_F(StreamTest, NeverLetsAPublishedEventWaitForTheNextOne) {
  constexpr uint64_t kRounds = 20, kStreams = 8;
  constexpr uint64_t kBurst = 500; // of all streams, more than one turn of the loop takes
  options_.heartbeat = options_.log_ttl = std::chrono::hours(1); // nothing else wakes the loop
  start();
  Requester client = requester();
  for (uint8_t name = 0; name < kStreams; ++name)
    client.ask<Ack>(generate(name));

  for (uint64_t round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    for (uint8_t name = 0; name < kStreams; ++name)
      threads.emplace_back([this, name, round] {
        for (uint64_t i = 0; i < kBurst; ++i)
          gateway_->publish(token(name, round * kBurst + i));
      });
    for (std::thread& thread : threads)
      thread.join();
    ASSERT_TRUE(eventually([&] { return gateway_->stats().sent == (round + 1) * kStreams * kBurst; }));
  }
}

TEST_F(StreamTest, PublishesFromManyThreads) {
  constexpr int kStreams = 8;
  constexpr int64_t kTokens = 500;
  start();
  Requester client = requester();
  std::vector<Subscriber> readers;
  for (uint8_t name = 1; name <= kStreams; ++name) {
    readers.push_back(subscriber(name));
    readers.back().expect<Welcome>();
    client.ask<Ack>(generate(name));
  }

  std::vector<std::thread> threads;
  for (uint8_t name = 1; name <= kStreams; ++name)
    threads.emplace_back([this, name] { publish_whole(name, kTokens); });
  for (std::thread& thread : threads)
    thread.join();

  for (Subscriber& reader : readers) {
    for (int64_t seq = 0; seq <= kTokens; ++seq)
      ASSERT_EQ(reader.next().seq, seq);
    reader.expect<Done>();
  }
}

} // namespace
} // namespace millrace::test
