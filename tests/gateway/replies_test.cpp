#include "gateway/zeromq/replies.hpp"
#include "tests/gateway/gateway_test.hpp"

#include <vector>

namespace millrace::test {
namespace {

/// Without the gateway's loop: each step is the test's. Over inproc, where what was sent has arrived when
/// send returns.
class RepliesTest : public testing::Test {
protected:
  RepliesTest() { replies_.socket().bind("inproc://requests"); }

  Requester requester(int queue = 100'000) {
    return Requester(context_, "inproc://requests", zmq::socket_type::dealer, queue);
  }
  /// Who sent the next request.
  Client client() { return replies_.receive().value().client; }

  void log_tokens(int64_t count) {
    ASSERT_TRUE(std::holds_alternative<Streams::Opened>(streams_.open(generate(1), {})));
    for (int64_t seq = 0; seq < count; ++seq)
      streams_.publish(token(1, seq));
  }
  static zmq::message_t frame(const std::string& text) { return zmq::message_t(text.data(), text.size()); }

  zmq::context_t context_ = make_context();
  FakeBackend backend_;
  Streams streams_{{.stream_log_bytes = 2u << 20, .total_log_bytes = 2u << 20, .log_ttl = std::chrono::seconds(0)},
                   backend_.interface()};
  Replies replies_{context_, "tcp://127.0.0.1:*", streams_};
};

TEST_F(RepliesTest, SendsAReplayInPiecesSoThatOthersHaveTheirTurn) {
  log_tokens(1'000);
  Requester first = requester(), second = requester();
  first.send_frames({"hello"});
  const Client first_client = client();
  second.send_frames({"hello"});
  const Client second_client = client();

  replies_.send(first_client, Replay{stream(1), 0, 0});
  replies_.send(second_client, frame("short"));
  const size_t piece = replies_.flush();

  EXPECT_EQ(second.next_within(std::chrono::milliseconds(0)), "short");
  EXPECT_LT(piece, 500u);
  EXPECT_TRUE(replies_.waiting());
  size_t total = piece;
  while (replies_.waiting())
    total += replies_.flush();
  EXPECT_EQ(total, 1'002u); // events, an Ack and the short answer
  for (int seq = 0; seq < 1'000; ++seq)
    ASSERT_EQ(first.expect<Token>().seq, seq);
  EXPECT_EQ(first.expect<Ack>().next_seq, 1'000);
}

TEST_F(RepliesTest, SkipsWhatTheLogDroppedBetweenTwoPieces) {
  log_tokens(3'000);
  Requester reader = requester();
  reader.send_frames({"hello"});
  replies_.send(client(), Replay{stream(1), 0, 0});
  replies_.flush();

  streams_.publish(token(1, 3'000, 0, 0, 1'040'000)); // pushes most others out
  while (replies_.waiting())
    replies_.flush();

  int events = 0;
  for (std::string answer = reader.next(); !is<Ack>(answer); answer = reader.next())
    ++events;
  EXPECT_GT(events, 0);
  EXPECT_LT(events, 3'000);
}

TEST_F(RepliesTest, RejectsAReplayWhoseStreamLeftTheLog) {
  log_tokens(600);
  Requester reader = requester();
  reader.send_frames({"hello"});
  replies_.send(client(), Replay{stream(1), 0, 0});
  replies_.flush();

  streams_.publish(done(1));
  streams_.expire();
  while (replies_.waiting())
    replies_.flush();

  std::string answer = reader.next();
  while (!is<Rejected>(answer))
    answer = reader.next();
  EXPECT_EQ(as<Rejected>(answer).error, "unknown_request");
}

TEST_F(RepliesTest, KeepsWhatAClientDoesNotReadAndGoesOnWhenItDoes) {
  log_tokens(3'000);
  Requester reader = requester(1); // and 1,000 in the queue of the ROUTER
  reader.send_frames({"hello"});
  replies_.send(client(), Replay{stream(1), 0, 0});

  while (replies_.flush() > 0) {
  }
  EXPECT_TRUE(replies_.waiting());
  std::vector<std::string> answers;
  EXPECT_TRUE(eventually([&] {
    replies_.flush();
    while (auto answer = reader.next_within(std::chrono::milliseconds(0)))
      answers.push_back(*std::move(answer));
    return answers.size() == 3'001;
  }));
  for (int seq = 0; seq < 3'000; ++seq)
    ASSERT_EQ(as<Token>(answers[seq]).seq, seq);
  EXPECT_EQ(as<Ack>(answers.back()).next_seq, 3'000);
  EXPECT_FALSE(replies_.waiting());
}

TEST_F(RepliesTest, GivesUpWhatIsForAClientThatHasGone) {
  Client gone;
  {
    Requester reader = requester();
    reader.send_frames({"hello"});
    gone = client();
  }

  EXPECT_TRUE(eventually([&] { // the ROUTER hears of it a little later
    replies_.send(gone, frame("answer"));
    replies_.flush();
    return replies_.undeliverable() > 0;
  }));
  EXPECT_FALSE(replies_.waiting());
}

zmq::message_t reference_to(zmq::message_t& frame) {
  zmq::message_t reference;
  reference.copy(frame);
  return reference;
}

TEST_F(RepliesTest, ServesNobodyWhoLeavesLargeAnswersUnread) {
  Requester slow = requester(), quick = requester();
  slow.send_frames({"hello"});
  const Client slow_client = client();
  quick.send_frames({"hello"});
  const Client quick_client = client();

  zmq::message_t large(4u << 20);
  int sent = 0;
  for (; sent < 10 && replies_.has_room(slow_client); ++sent) {
    replies_.send(slow_client, reference_to(large));
    replies_.flush();
  }

  EXPECT_EQ(sent, 2);
  EXPECT_FALSE(replies_.waiting()) << "all of it is with ZeroMQ, and counts";
  EXPECT_TRUE(replies_.has_room(quick_client));
  EXPECT_FALSE(replies_.crowded());
  slow.next();
  EXPECT_TRUE(replies_.has_room(slow_client));
}

TEST_F(RepliesTest, KeepsRoomForSmallAnswersWhereManyLeaveLargeOnesUnread) {
  zmq::message_t large(4u << 20);
  std::vector<Requester> slow;
  std::vector<Client> clients;
  for (int i = 0; i < 40 && !replies_.crowded(); ++i) {
    slow.push_back(requester());
    slow.back().send_frames({"hello"});
    clients.push_back(client());
    replies_.send(clients.back(), reference_to(large));
    replies_.flush();
  }

  EXPECT_EQ(clients.size(), 32u); // 128 MiB
  EXPECT_FALSE(replies_.has_room(clients[0]));
  Requester other = requester();
  other.send_frames({"hello"});
  const Client other_client = client();
  EXPECT_TRUE(replies_.has_room(other_client));
  replies_.send(other_client, frame("small"));
  EXPECT_TRUE(replies_.has_room(other_client));
  slow[1].next();
  EXPECT_FALSE(replies_.crowded());
  EXPECT_TRUE(replies_.has_room(clients[0]));
}

TEST_F(RepliesTest, CountsNothingForClientsThatHaveGone) {
  zmq::message_t large(4u << 20);
  for (int i = 0; i < 100; ++i) { // 400 MiB
    Requester reader = requester();
    reader.send_frames({"hello"});
    replies_.send(client(), reference_to(large));
    replies_.flush();
  }

  EXPECT_TRUE(eventually([&] {
    replies_.receive(); // lets the ROUTER hear of it
    return !replies_.crowded();
  }));
}

} // namespace
} // namespace millrace::test
