#include "gateway/client.hpp"
#include "tests/gateway/gateway_test.hpp"
#include "tests/gateway/lossy_network.hpp"

#include <set>

namespace millrace::test {
namespace {

using std::chrono::milliseconds;

class ClientTest : public GatewayTest {
protected:
  ClientTest() {
    options_.heartbeat = milliseconds(100);
    client_options_.heartbeat = milliseconds(100);
    client_options_.patience = milliseconds(150);
  }
  void start_with_client() {
    start();
    connect();
  }
  void connect() {
    client_options_.requests = gateway_->requests_endpoint();
    client_options_.events = gateway_->events_endpoint();
    client_.emplace(client_options_);
  }
  /// A client whose frames pass a network that loses some.
  void connect_over(LossyNetwork& network) {
    client_options_.requests = network.requests_endpoint();
    client_options_.events = network.events_endpoint();
    client_.emplace(client_options_);
  }
  /// Turns the client until the backend has been given so many requests.
  bool submitted(Client::Stream& stream, size_t count) {
    return eventually([&] {
      if (auto event = stream.next(milliseconds(1)))
        early_.push_back(*std::move(event));
      return backend_.submitted().size() == count;
    });
  }
  /// "0.0 0.1 f0.2 done" and so on, until the stream ends.
  std::string rest(Client::Stream& stream) {
    std::string text;
    for (const auto end = std::chrono::steady_clock::now() + kDeadline; !stream.ended();) {
      if (std::chrono::steady_clock::now() > end)
        return text + "TIMEOUT";
      auto event = stream.next(milliseconds(100));
      if (!event)
        continue;
      if (const auto* token = std::get_if<Token>(&*event))
        text += std::to_string(token->choice) + '.' + std::to_string(token->seq) + ' ';
      else if (const auto* finished = std::get_if<Finished>(&*event))
        text += 'f' + std::to_string(finished->choice) + '.' + std::to_string(finished->seq) + ' ';
      else if (const auto* lost = std::get_if<Lagging>(&*event))
        text += "lost" + std::to_string(lost->wanted_seq) + '-' + std::to_string(lost->held_seq) + ' ';
      else if (const auto* rejected = std::get_if<Rejected>(&*event))
        text += "rejected:" + rejected->error;
      else if (std::holds_alternative<Done>(*event))
        text += "done";
    }
    return text;
  }
  static std::string whole(int64_t tokens, int64_t from = 0) {
    std::string text;
    for (int64_t seq = from; seq < tokens; ++seq)
      text += "0." + std::to_string(seq) + ' ';
    return text + "f0." + std::to_string(tokens) + " done";
  }

  ClientOptions client_options_;
  std::optional<Client> client_;
  std::vector<StreamEvent> early_;
};

TEST_F(ClientTest, ReadsAStreamFromItsRequestToItsEnd) {
  start_with_client();
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 50);

  EXPECT_EQ(rest(stream), whole(50));
  EXPECT_EQ(stream.position(), std::vector<int64_t>{51});
}

TEST_F(ClientTest, DrawsAnIdForARequestWithoutOne) {
  start_with_client();
  Generate request = generate(0);
  auto stream = client_->generate(request);
  ASSERT_TRUE(submitted(stream, 1));

  EXPECT_NE(stream.id(), StreamId{});
  EXPECT_EQ(backend_.submitted()[0].request, stream.id());
}

TEST_F(ClientTest, ReadsManyStreamsAtOnce) {
  start_with_client();
  std::vector<Client::Stream> streams;
  for (uint8_t name = 1; name <= 20; ++name)
    streams.push_back(client_->generate(generate(name)));
  ASSERT_TRUE(submitted(streams[0], 20));
  for (uint8_t name = 1; name <= 20; ++name)
    publish_whole(name, name);

  for (uint8_t name = 20; name >= 1; --name)
    EXPECT_EQ(rest(streams[name - 1u]), whole(name));
}

TEST_F(ClientTest, TellsARefusal) {
  backend_.refuse_with({.code = Error::busy, .field = "", .message = "the queue is full"});
  start_with_client();
  auto stream = client_->generate(generate(1));

  EXPECT_EQ(rest(stream), "rejected:busy");
}

TEST_F(ClientTest, WaitsForAServerThatIsNotThereYet) {
  start();
  options_.requests = gateway_->requests_endpoint();
  options_.events = gateway_->events_endpoint();
  gateway_.reset();
  client_options_.requests = options_.requests;
  client_options_.events = options_.events;
  client_.emplace(client_options_);
  auto stream = client_->generate(generate(1));
  EXPECT_FALSE(stream.next(milliseconds(200)));

  start();
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 3);

  EXPECT_EQ(rest(stream), whole(3));
}

TEST_F(ClientTest, RepairsWhatTheNetworkLost) {
  start();
  LossyNetwork network(*gateway_, [n = 0](std::string_view type) mutable {
    return (type == Token::kType || type == Finished::kType || type == Done::kType) && ++n % 3 == 0;
  });
  connect_over(network);
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 200);

  EXPECT_EQ(rest(stream), whole(200));
  EXPECT_GT(stream.repairs(), 0);
}

TEST_F(ClientTest, RepairsEachChoice) {
  start();
  LossyNetwork network(
      *gateway_, [n = 0](std::string_view type) mutable { return type == Token::kType && ++n % 4 == 0; });
  connect_over(network);
  auto stream = client_->generate(generate(1, 3));
  ASSERT_TRUE(submitted(stream, 1));
  for (int64_t seq = 0; seq < 40; ++seq)
    for (const int32_t choice : {0, 1, 2})
      gateway_->publish(token(1, seq, choice));
  for (const int32_t choice : {2, 0, 1})
    gateway_->publish(finished(1, 40, choice));
  gateway_->publish(done(1));

  std::map<int32_t, std::vector<int64_t>> seqs;
  while (!stream.ended())
    if (const auto event = stream.next(kDeadline)) {
      if (const auto* token = std::get_if<Token>(&*event))
        seqs[token->choice].push_back(token->seq);
    } else if (!stream.ended()) {
      FAIL() << "no event came";
    }
  ASSERT_EQ(seqs.size(), 3u);
  for (const auto& [choice, got] : seqs) {
    ASSERT_EQ(got.size(), 40u);
    EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
  }
}

TEST_F(ClientTest, AsksAgainWhenARequestIsLost) {
  start();
  LossyNetwork network(
      *gateway_, [left = 2](std::string_view type) mutable { return type == Generate::kType && left-- > 0; });
  connect_over(network);
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 5);

  EXPECT_EQ(rest(stream), whole(5));
  EXPECT_GT(stream.repairs(), 1);
}

TEST_F(ClientTest, OpensAStreamOnceThoughItsAnswerIsLost) {
  start();
  LossyNetwork network(
      *gateway_, [left = 1](std::string_view type) mutable { return type == Ack::kType && left-- > 0; });
  connect_over(network);
  auto stream = client_->generate(generate(1));
  EXPECT_FALSE(stream.next(milliseconds(500)));
  publish_whole(1, 5);

  EXPECT_EQ(rest(stream), whole(5));
  EXPECT_EQ(backend_.submitted().size(), 1u);
}

TEST_F(ClientTest, SubscribesAgainWhenItIsNotWelcomed) {
  start();
  LossyNetwork network(
      *gateway_, [left = 1](std::string_view type) mutable { return type == Welcome::kType && left-- > 0; });
  connect_over(network);
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 5);

  EXPECT_EQ(rest(stream), whole(5));
}

TEST_F(ClientTest, JoinsAStreamLate) {
  start_with_client();
  auto first = client_->generate(generate(1));
  ASSERT_TRUE(submitted(first, 1));
  for (int64_t seq = 0; seq < 10; ++seq)
    gateway_->publish(token(1, seq));
  Client other(client_options_);
  auto late = other.join(stream(1), {4});
  ASSERT_TRUE(late.next(kDeadline));
  for (int64_t seq = 10; seq < 20; ++seq)
    gateway_->publish(token(1, seq));
  gateway_->publish(finished(1, 20));
  gateway_->publish(done(1));

  EXPECT_EQ(rest(first), whole(20));
  EXPECT_EQ(rest(late), whole(20, 5));
}

TEST_F(ClientTest, ReadsAStreamThatHasEnded) {
  start_with_client();
  {
    auto first = client_->generate(generate(1));
    ASSERT_TRUE(submitted(first, 1));
  }
  publish_whole(1, 10);
  connect();
  auto late = client_->join(stream(1));

  EXPECT_EQ(rest(late), whole(10));
}

TEST_F(ClientTest, TellsThatNobodyKnowsAStream) {
  start_with_client();
  auto stream = client_->join(test::stream(9));

  EXPECT_EQ(rest(stream), "rejected:unknown_request");
}

TEST_F(ClientTest, TellsWhatTheLogDropped) {
  options_.stream_log_bytes = 8'000;
  start_with_client();
  {
    auto first = client_->generate(generate(1));
    ASSERT_TRUE(submitted(first, 1));
  }
  publish_whole(1, 50, 1'000);
  connect(); // the old connection may have been sent some of it
  auto late = client_->join(stream(1));
  const std::string text = rest(late);

  EXPECT_TRUE(text.starts_with("lost0-")) << text;
  EXPECT_TRUE(text.ends_with("0.49 f0.50 done")) << text;
}

TEST_F(ClientTest, HearsOfARestartedServerThatItsStreamIsGone) {
  start_with_client();
  options_.requests = gateway_->requests_endpoint();
  options_.events = gateway_->events_endpoint();
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  gateway_->publish(token(1, 0));
  ASSERT_TRUE(stream.next(kDeadline));

  gateway_.reset();
  start();

  EXPECT_EQ(rest(stream), "rejected:unknown_request");
}

TEST_F(ClientTest, SendsToARestartedServerWhatTheOldOneHadNotHeard) {
  start();
  options_.requests = gateway_->requests_endpoint();
  options_.events = gateway_->events_endpoint();
  client_options_.patience = kDeadline; // only the restart makes it ask again
  {
    LossyNetwork network(*gateway_, [](std::string_view type) { return type == Generate::kType; });
    connect_over(network);
    auto stream = client_->generate(generate(1));
    EXPECT_FALSE(stream.next(milliseconds(300)));
    network.lose([](std::string_view) { return false; });
    gateway_.reset();
    start();
    ASSERT_TRUE(submitted(stream, 1));
    publish_whole(1, 3);

    EXPECT_EQ(rest(stream), whole(3));
  }
}

TEST_F(ClientTest, CancelsAStream) {
  start_with_client();
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  stream.cancel();

  EXPECT_TRUE(eventually([&] {
    stream.next(milliseconds(1));
    return !backend_.cancelled().empty();
  }));
  EXPECT_EQ(backend_.cancelled()[0], test::stream(1));
}

TEST_F(ClientTest, JoinsARequestWithTheSameKey) {
  start_with_client();
  Generate request = generate(1);
  request.idempotency_key = "once";
  auto first = client_->generate(request);
  ASSERT_TRUE(submitted(first, 1));
  Client other(client_options_);
  request.request = stream(2);
  auto second = other.generate(request);
  EXPECT_FALSE(second.next(milliseconds(100)));
  publish_whole(1, 5);

  EXPECT_EQ(rest(second), whole(5));
  EXPECT_EQ(second.id(), stream(1));
  EXPECT_EQ(rest(first), whole(5));
  EXPECT_EQ(backend_.submitted().size(), 1u);
}

TEST_F(ClientTest, ReadsAtItsOwnPace) {
  start_with_client();
  client_options_.room = 16;
  connect();
  auto stream = client_->generate(generate(1), Delivery::paced);
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 3'000);

  EXPECT_EQ(rest(stream), whole(3'000));
}

TEST_F(ClientTest, GoesOnAfterAPauseForWhichItLostItsPlace) {
  options_.follow_silence = milliseconds(0); // any moment without credit is too long
  start_with_client();
  client_options_.room = 16;
  connect();
  auto stream = client_->generate(generate(1), Delivery::paced);
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 300);

  EXPECT_EQ(rest(stream), whole(300));
}

TEST_F(ClientTest, ReadsWithLittleRoom) {
  start_with_client();
  client_options_.room = 8;
  connect();
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  publish_whole(1, 500);

  EXPECT_EQ(rest(stream), whole(500));
}

TEST_F(ClientTest, LooksAtAStream) {
  start_with_client();
  auto stream = client_->generate(generate(1));
  ASSERT_TRUE(submitted(stream, 1));
  gateway_->publish(token(1, 0));
  ASSERT_TRUE(stream.next(kDeadline));

  const auto known = client_->look(test::stream(1), kDeadline);
  const auto unknown = client_->look(test::stream(2), kDeadline);

  ASSERT_TRUE(known && std::holds_alternative<Snapshot>(*known));
  EXPECT_EQ(std::get<Snapshot>(*known).choices.at(0).text, token(1, 0).text);
  ASSERT_TRUE(unknown && std::holds_alternative<Rejected>(*unknown));
}

TEST_F(ClientTest, AsksHowTheServerDoes) {
  start_with_client();

  ASSERT_TRUE(client_->stats(10, kDeadline));
  gateway_.reset();
  EXPECT_FALSE(client_->stats(10, milliseconds(200)));
}

TEST_F(ClientTest, ReadsAStreamOnceAtATime) {
  start_with_client();
  auto stream = client_->generate(generate(1));

  EXPECT_THROW(client_->join(stream.id()), std::invalid_argument);
}

} // namespace
} // namespace millrace::test
