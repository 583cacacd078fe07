// Followers that have gone, or say nothing more.

#include "gateway/zeromq/follows.hpp"
#include "tests/gateway/gateway_test.hpp"

#include <vector>

namespace millrace::test {
namespace {

using std::chrono::milliseconds;

/// Without the gateway's loop: each step is the test's.
class SilentFollowsTest : public testing::Test {
protected:
  SilentFollowsTest() {
    replies_.socket().bind("inproc://requests");
    for (uint8_t name = 1; name <= 4; ++name) {
      EXPECT_TRUE(std::holds_alternative<Streams::Opened>(streams_.open(generate(name), {})));
      for (int64_t seq = 0; seq < 3; ++seq)
        streams_.publish(token(name, seq));
    }
  }
  void start(const FollowLimits& limits = {}) { follows_.emplace(streams_, replies_, limits); }

  Requester requester() { return Requester(context_, "inproc://requests"); }
  /// The other side of a requester.
  Client client_of(Requester& requester) {
    requester.send_frames({"hello"});
    return replies_.receive().value().client;
  }
  /// With a window of one event it has no credit once that is sent.
  std::optional<Failure> follow(const Client& client, uint8_t name, int32_t window = 1) {
    Follow request;
    request.request = stream(name);
    request.window = window;
    auto failure = follows_->begin(client, request);
    follows_->pump();
    return failure;
  }

  zmq::context_t context_ = make_context();
  FakeBackend backend_;
  Streams streams_{{}, backend_.interface()};
  Replies replies_{context_, "tcp://127.0.0.1:*", streams_};
  std::optional<Follows> follows_;
};

TEST_F(SilentFollowsTest, ForgetsAllThatAClientFollowedOnceItIsFoundToHaveGone) {
  start();
  Client gone;
  {
    Requester reader = requester();
    gone = client_of(reader);
    follow(gone, 1);
    follow(gone, 2);
    follow(gone, 3, 65'536); // alone with credit
  }
  Requester other = requester();
  follow(client_of(other), 1);

  int64_t seq = 3;
  EXPECT_TRUE(eventually([&] {
    replies_.receive(); // lets the ROUTER hear of it
    streams_.publish(token(3, seq++));
    follows_->note(stream(3));
    follows_->pump();
    return follows_->size() == 1;
  }));
  EXPECT_FALSE(follow(client_of(other), 2)) << "the other goes on";
  EXPECT_EQ(follows_->size(), 2u);
}

TEST_F(SilentFollowsTest, EndsWhatASilentReaderHasNoCreditForAndTellsIt) {
  start({.silence = milliseconds(0)});
  Requester reader = requester();
  const Client client = client_of(reader);
  follow(client, 1);
  follow(client, 2, 100);

  follows_->sweep();

  EXPECT_EQ(follows_->size(), 1u);
  std::vector<std::string> rejected;
  while (const auto frame = reader.next_within(milliseconds(0)))
    if (is<Rejected>(*frame))
      rejected.push_back(as<Rejected>(*frame).error + bytes_of(as<Rejected>(*frame).request));
  EXPECT_EQ(rejected, std::vector{"busy" + bytes_of(stream(1))});
  EXPECT_FALSE(follow(client, 1)) << "it may go on";
}

TEST_F(SilentFollowsTest, KeepsWhatAReaderThatTalksHasNoCreditFor) {
  start({.silence = std::chrono::hours(1)});
  Requester reader = requester();
  const Client client = client_of(reader);
  follow(client, 1);

  follows_->sweep();
  EXPECT_EQ(follows_->size(), 1u);
}

TEST_F(SilentFollowsTest, GivesThePlaceOfASilentReaderToOneThatWantsIt) {
  start({.follows = 3, .silence_when_full = milliseconds(0)});
  Requester first = requester(), second = requester(), third = requester();
  const Client first_client = client_of(first), second_client = client_of(second);
  follow(first_client, 1);
  follow(second_client, 1);
  follow(second_client, 2, 100);
  follows_->hear(first_client); // so the second was silent for longer

  EXPECT_FALSE(follow(client_of(third), 1));

  EXPECT_EQ(follows_->size(), 3u);
  EXPECT_TRUE(is<Token>(second.next()));
  std::string last = second.next();
  while (is<Token>(last))
    last = second.next();
  EXPECT_EQ(as<Rejected>(last).request, stream(1));
  EXPECT_TRUE(is<Token>(first.next()));
  EXPECT_FALSE(first.next_within(milliseconds(0)));
}

TEST_F(SilentFollowsTest, RefusesAFollowWhereAllOthersHaveCredit) {
  start({.follows = 2, .silence_when_full = milliseconds(0)});
  Requester reader = requester(), other = requester();
  const Client client = client_of(reader);
  follow(client, 1, 100);
  follow(client, 2, 100);

  const auto failure = follow(client_of(other), 1);

  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Error::busy);
  EXPECT_EQ(follows_->size(), 2u);
  EXPECT_FALSE(follow(client, 1, 50)) << "again needs no place";
}

TEST_F(SilentFollowsTest, FindsThePlacesOfClientsThatHaveGoneWithoutAWord) {
  start({.follows = 4, .silence_when_full = milliseconds(0)});
  {
    Requester reader = requester();
    const Client gone = client_of(reader);
    for (uint8_t name = 1; name <= 4; ++name)
      follow(gone, name);
  }
  Requester other = requester();
  const Client client = client_of(other);

  EXPECT_TRUE(eventually([&] {
    replies_.receive(); // likewise
    return !follow(client, 1) && follows_->size() == 1;
  }));
}

} // namespace
} // namespace millrace::test
