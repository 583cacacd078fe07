#include "tests/gateway/gateway_test.hpp"

#include <stdexcept>
#include <thread>

namespace millrace::test {
namespace {

using RequestTest = GatewayTest;

TEST_F(RequestTest, RefusesAnIdInUseAndLeavesItsStreamAlone) {
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester(), other = requester();
  client.ask<Ack>(generate(1));

  const Rejected rejected = other.ask<Rejected>(generate(1, 2));

  EXPECT_EQ(rejected.error, "conflict");
  EXPECT_EQ(rejected.request, stream(1));
  EXPECT_EQ(backend_.submitted().size(), 1u);
  publish_whole(1, 1);
  reader.expect<Token>(); // and no Rejected before
  reader.expect<Finished>();
  reader.expect<Done>();
  EXPECT_EQ(other.ask<Rejected>(generate(1, 2)).error, "conflict"); // while its log is held
}

TEST_F(RequestTest, JoinsARequestThatIsSentAgain) {
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester(), other = requester();
  Generate keyed = generate(2);
  keyed.idempotency_key = "order 7";
  EXPECT_FALSE(client.ask<Ack>(generate(1)).joined);
  EXPECT_FALSE(client.ask<Ack>(keyed).joined);

  const Ack again = other.ask<Ack>(generate(1));
  keyed.request = stream(3);
  const Ack by_key = other.ask<Ack>(keyed);
  keyed.n = 2;
  const Rejected another = other.ask<Rejected>(keyed);

  EXPECT_TRUE(again.joined);
  EXPECT_EQ(again.request, stream(1));
  EXPECT_TRUE(by_key.joined);
  EXPECT_EQ(by_key.request, stream(2));
  EXPECT_EQ(another.error, "conflict");
  EXPECT_EQ(another.field, "idempotency_key");
  EXPECT_EQ(backend_.submitted().size(), 2u);
  publish_whole(1, 1);
  reader.expect<Token>();
}

TEST_F(RequestTest, TellsARefusalToTheClientAndOnTheTopic) {
  backend_.refuse_with({Error::busy, "", "the queue is full"});
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();

  const Rejected answer = client.ask<Rejected>(generate(1));

  EXPECT_EQ(answer.error, "busy");
  EXPECT_EQ(answer.message, "the queue is full");
  EXPECT_GT(answer.retry_after_ms, 0);
  EXPECT_EQ(reader.expect<Rejected>().error, "busy");
  EXPECT_EQ(client.ask<Rejected>(Replay{stream(1), 0, 0}).error, "unknown_request"); // no log was kept
}

TEST_F(RequestTest, SurvivesABackendThatThrows) {
  gateway_.emplace(options_, Backend{.submit = [](Generate) -> std::optional<Failure> {
                                       throw std::runtime_error("test");
                                     },
                                     .cancel = [](const StreamId&) {}});
  Requester client = requester();

  EXPECT_EQ(client.ask<Rejected>(generate(1)).error, "internal");
  EXPECT_EQ(client.ask<Rejected>(generate(1)).error, "internal");
}

TEST_F(RequestTest, PassesACancelOnAndAcknowledgesIt) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  EXPECT_EQ(client.ask<Ack>(Cancel{stream(1)}).of, "cancel");
  EXPECT_EQ(backend_.cancelled(), std::vector{stream(1)});
  gateway_->publish(done(1));
  EXPECT_EQ(client.ask<Ack>(Cancel{stream(1)}).of, "cancel"); // too late, and no error
}

TEST_F(RequestTest, KnowsNoStreamThatNeverWas) {
  start();
  Requester client = requester();

  EXPECT_EQ(client.ask<Rejected>(Cancel{stream(7)}).error, "unknown_request");
  const Rejected rejected = client.ask<Rejected>(Replay{stream(7), 0, 0});
  EXPECT_EQ(rejected.error, "unknown_request");
  EXPECT_EQ(rejected.request, stream(7));
  EXPECT_TRUE(backend_.cancelled().empty());
}

TEST_F(RequestTest, RefusesToReplayAChoiceThatTheStreamDoesNotHave) {
  start();
  Requester client = requester();
  client.ask<Ack>(generate(1, 2));

  const Rejected rejected = client.ask<Rejected>(Replay{stream(1), 2, 0});

  EXPECT_EQ(rejected.error, "invalid_field");
  EXPECT_EQ(rejected.field, "choice");
}

TEST_F(RequestTest, AnswersARequestSocket) {
  start();
  Requester client = requester(zmq::socket_type::req);

  EXPECT_EQ(client.ask<Ack>(generate(1)).of, "generate");
  EXPECT_EQ(client.ask<Rejected>(generate(1, 2)).error, "conflict");
  client.send_frames({"junk", "more junk"});
  EXPECT_EQ(client.expect<Rejected>().error, "malformed");
}

TEST_F(RequestTest, TakesNothingNewWhileDrainingButLetsStreamsEnd) {
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  gateway_->drain();

  EXPECT_EQ(client.ask<Rejected>(generate(2)).error, "draining");
  EXPECT_EQ(backend_.submitted().size(), 1u);
  publish_whole(1, 1);
  reader.expect<Token>();
  EXPECT_EQ(client.ask<Ack>(Cancel{stream(1)}).of, "cancel");
}

TEST_F(RequestTest, DoesNotCallTheBackendOnceDetached) {
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  gateway_->detach();

  EXPECT_EQ(client.ask<Ack>(Cancel{stream(1)}).of, "cancel");
  EXPECT_EQ(client.ask<Rejected>(generate(2)).error, "draining");
  EXPECT_TRUE(backend_.cancelled().empty());
  EXPECT_EQ(backend_.submitted().size(), 1u);
  gateway_->publish(done(1));
  reader.expect<Done>();
}

TEST_F(RequestTest, SendsWhatWasPublishedBeforeItCloses) {
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));

  publish_whole(1, 5'000); // several turns of the loop
  gateway_.reset();

  for (int64_t seq = 0; seq <= 5'000; ++seq)
    ASSERT_EQ(reader.next().seq, seq);
  reader.expect<Done>();
}

TEST_F(RequestTest, ClosesWithoutDelayForThoseWhoDoNotRead) {
  options_.stream_log_bytes = 64u << 20;
  start();
  Subscriber reader = subscriber({bytes_of(stream(1))}, {.messages = 10, .bytes = 4'096});
  reader.expect<Welcome>();
  Requester client = requester(zmq::socket_type::dealer, 10);
  client.ask<Ack>(generate(1));
  publish_whole(1, 10'000, 1'000);
  client.send(Replay{stream(1), 0, 0});
  ASSERT_TRUE(eventually([&] { return gateway_->stats().published == 10'002; }));

  const auto begin = std::chrono::steady_clock::now();
  gateway_.reset();

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(RequestTest, AnswersAClientThatConnectsAgainUnderANewIdentity) {
  start();
  {
    Requester gone = requester();
    gone.ask<Ack>(generate(1));
    gone.send(Cancel{stream(1)}); // its answer goes nowhere
  }
  Requester client = requester();

  EXPECT_EQ(client.ask<Rejected>(generate(1, 2)).error, "conflict");
}

TEST(Gateway, NamesAnEndpointThatItCannotServe) {
  for (const auto& [requests, events] :
       {std::pair{"tcp://*:5555", "tcp://127.0.0.1:*"}, std::pair{"tcp://127.0.0.1:*", "tcp://0.0.0.0:*"}})
    try {
      const Gateway gateway({.requests = requests, .events = events}, {});
      FAIL() << requests << " " << events;
    } catch (const std::system_error& error) {
      EXPECT_NE(std::string(error.what()).find("only loopback"), std::string::npos);
    }
}

} // namespace
} // namespace millrace::test
