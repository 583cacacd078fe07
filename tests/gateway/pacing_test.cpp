// What subscribers that do not keep up cost themselves and others.

#include "gateway/zeromq/publisher.hpp"
#include "tests/gateway/gateway_test.hpp"

#include <thread>

namespace millrace::test {
namespace {

using PacingTest = GatewayTest;

/// Reads numbered events until the stream ends; the number of those that are missing.
int64_t count_missing(Subscriber& reader, int64_t numbered) {
  int64_t seen = 0, last = -1;
  for (Delivered event = reader.next(); !is<Done>(event.body); event = reader.next())
    if (event.seq >= 0) {
      EXPECT_GT(event.seq, std::exchange(last, event.seq));
      ++seen;
    }
  return numbered - seen;
}

TEST_F(PacingTest, LosesNothingOfABurstForWhoReadsBesideOneWhoStalls) {
  constexpr int64_t kTokens = 100'000;
  options_.stream_log_bytes = 64u << 20;
  start();
  Subscriber reader = subscriber({bytes_of(stream(1))}, {.messages = 1'000, .bytes = 0});
  reader.expect<Welcome>();
  Subscriber stalled = subscriber({bytes_of(stream(1))}, {.messages = 10, .bytes = 4'096});
  stalled.expect<Welcome>();
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  std::thread pipeline([&] { publish_whole(1, kTokens); });
  EXPECT_EQ(count_missing(reader, kTokens + 1), 0);
  pipeline.join();
}

TEST_F(PacingTest, HoldsUpNoOtherTopicForOneThatStalls) {
  constexpr int64_t kTokens = 4'000; // more than queue and kernel buffers take
  options_.subscriber_queue = 100;
  options_.stream_log_bytes = 64u << 20;
  start();
  Subscriber stalled = subscriber({bytes_of(stream(1))}, {.messages = 10, .bytes = 4'096});
  stalled.expect<Welcome>();
  Subscriber reader = subscriber(2);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  client.ask<Ack>(generate(2));

  publish_whole(1, kTokens, 1'000);
  gateway_->publish(done(2));
  reader.expect<Done>();

  EXPECT_EQ(gateway_->stats().overrun_subscribers, 0u) << "it came when the stalled topic had waited";
  EXPECT_TRUE(eventually([&] { return gateway_->stats().overrun_subscribers == 1; })) << "which it did";
}

/// Over inproc, where there is no queue but that of the socket itself.
class PublisherPacingTest : public testing::Test {
protected:
  static constexpr int kQueue = 40;
  static constexpr std::chrono::milliseconds kPatience{250};

  zmq::socket_t peer(int queue = 1) {
    zmq::socket_t socket(context_, zmq::socket_type::xsub);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvhwm, queue);
    socket.connect("inproc://events");
    socket.send(zmq::buffer('\1' + bytes_of(stream(1))));
    publisher_.admit(
        10, [](const StreamId&, const Principal&) { return true; }, [](const StreamId&) {});
    return socket;
  }
  void publish(int64_t seq, uint8_t name = 1) {
    const std::string text(100, 'x');
    publisher_.publish(
        {.sequence = {stream(name), 0, 0}, .seq = seq, .body = zmq::message_t(text.data(), text.size())});
  }
  static bool receive(zmq::socket_t& peer) {
    zmq::message_t frame;
    if (!peer.recv(frame, zmq::recv_flags::dontwait))
      return false;
    while (frame.more())
      (void)peer.recv(frame);
    return true;
  }

  zmq::context_t context_ = make_context();
  Publisher publisher_ = [this] {
    Publisher publisher(context_, "tcp://127.0.0.1:*", kQueue, 100, {}, kPatience);
    publisher.socket().bind("inproc://events");
    return publisher;
  }();
};

TEST_F(PublisherPacingTest, KeepsABurstForASubscriberThatReads) {
  zmq::socket_t reader = peer();
  for (int64_t seq = 0; seq < 4 * kQueue; ++seq)
    publish(seq);
  EXPECT_TRUE(publisher_.waiting());

  int received = 0;
  ASSERT_TRUE(eventually([&] {
    while (receive(reader))
      ++received;
    publisher_.flush();
    return received == 4 * kQueue;
  }));
  EXPECT_FALSE(publisher_.waiting());
  EXPECT_EQ(publisher_.overrun(), 0u);
}

TEST_F(PublisherPacingTest, LetsTopicsThatWaitTakeTurns) {
  zmq::socket_t reader = peer();
  for (uint8_t name = 2; name <= 50; ++name)
    reader.send(zmq::buffer('\1' + bytes_of(stream(name))));
  publisher_.admit(
      100, [](const StreamId&, const Principal&) { return true; }, [](const StreamId&) {});
  for (int64_t seq = 0; seq < kQueue; ++seq)
    for (uint8_t name = 1; name <= 50; ++name)
      publish(seq, name);

  int received = 0;
  ASSERT_TRUE(eventually([&] {
    while (receive(reader))
      ++received;
    publisher_.flush();
    return received == 50 * kQueue;
  }));
  EXPECT_EQ(publisher_.overrun(), 0u) << "a topic was given up that had no turn";
}

TEST_F(PublisherPacingTest, GivesUpASubscriberThatDoesNotReadAndServesTheOthers) {
  zmq::socket_t stalled = peer(), reader = peer(1'000);
  for (int64_t seq = 0; seq < 4 * kQueue; ++seq)
    publish(seq);
  EXPECT_TRUE(publisher_.waiting());

  ASSERT_TRUE(eventually([&] {
    publisher_.flush();
    return !publisher_.waiting();
  }));

  EXPECT_EQ(publisher_.overrun(), 1u) << "given up once, not for each event";
  int received = 0;
  while (receive(reader))
    ++received;
  EXPECT_EQ(received, 4 * kQueue);
}

TEST_F(PublisherPacingTest, WaitsForNobodyWhoHadLongEnough) {
  zmq::socket_t stalled = peer(), reader = peer(1'000);
  for (int64_t seq = 0; seq < 2 * kQueue; ++seq) {
    publish(seq);
    // As slow as a stream that is generated: a queue takes several times the patience.
    const auto next = Publisher::Clock::now() + kPatience / 25;
    while (Publisher::Clock::now() < next)
      EXPECT_FALSE(publisher_.waiting());
  }

  EXPECT_EQ(publisher_.overrun(), 1u);
}

} // namespace
} // namespace millrace::test
