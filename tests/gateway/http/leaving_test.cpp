// A peer that leaves while its answer is made is noticed at once, so that nobody computes for it.

#include "tests/gateway/http/server_test.hpp"

#include <sys/ioctl.h>

namespace millrace::http::test {
namespace {

class PeersThatLeave : public ServerTest {
protected:
  /// A request whose answer is awaited, and what tells that its peer has gone.
  std::shared_ptr<Exchange> ask(Peer& client, std::string_view body = "") {
    if (!server_)
      start_held();
    client.request("POST", "/", body);
    auto exchange = held_.take();
    on_loop(*exchange, [this](Exchange& e) { e.on_close([this] { closed_.give(); }); });
    return exchange;
  }

  Signal closed_;
};

TEST_F(PeersThatLeave, BeforeAnAnswerAreNoticed) {
  start_held();
  auto client = peer();
  const auto exchange = ask(client);

  client.close();

  EXPECT_TRUE(closed_.wait());
  on_loop(*exchange, [](Exchange& e) { e.respond({}); }); // too late, and no harm
  EXPECT_EQ(closed_.count(), 1);
}

TEST_F(PeersThatLeave, WithAResetAreNoticed) {
  start_held();
  auto client = peer();
  ask(client);

  client.reset();

  EXPECT_TRUE(closed_.wait());
}

TEST_F(PeersThatLeave, InTheMidstOfAStreamAreNoticed) {
  start_held();
  auto client = peer();
  const auto exchange = ask(client);
  on_loop(*exchange, [](Exchange& e) {
    e.begin({});
    e.write("token");
  });
  Answered head;
  client.receive_head(head);
  EXPECT_EQ(client.receive_chunk(), "token");

  client.close();

  EXPECT_TRUE(closed_.wait());
  on_loop(*exchange, [](Exchange& e) {
    e.write("more");
    e.end();
    EXPECT_EQ(e.queued(), 0u);
  });
}

TEST_F(PeersThatLeave, WithUnreadBytesOfAStreamAreNoticed) {
  start_held();
  auto client = peer(4'096);
  const auto exchange = ask(client);
  on_loop(*exchange, [](Exchange& e) {
    e.begin({});
    e.write(std::string(1'000'000, 'x'));
  });
  client.receive();

  client.close();

  EXPECT_TRUE(closed_.wait());
}

TEST_F(PeersThatLeave, BehindLaterRequestsAreNoticed) {
  start_held();
  auto client = peer();
  const auto exchange = ask(client);
  client.request("GET", "/2").request("GET", "/3");

  client.close();

  EXPECT_TRUE(closed_.wait());
  EXPECT_TRUE(held_.empty());
}

TEST_F(PeersThatLeave, BehindMoreThanTheServerReadsAheadAreNoticed) {
  start_held();
  auto client = peer();
  const auto exchange = ask(client);
  client.send(std::string(100'000, 'x'));

  client.finish_sending();

  EXPECT_TRUE(closed_.wait());
}

TEST_F(PeersThatLeave, AreNotMistakenForThoseWhoAskOn) {
  start_held();
  auto client = peer();
  const auto exchange = ask(client);
  for (int i = 0; i < 3'000; ++i) // more than is read ahead
    client.request("GET", "/later");

  respond(*exchange, "first");

  EXPECT_EQ(client.answer().body, "first");
  for (int i = 0; i < 3'000; ++i) {
    respond(*held_.take(), "later");
    ASSERT_EQ(client.answer().body, "later");
  }
  EXPECT_EQ(closed_.count(), 0);
}

TEST_F(PeersThatLeave, AfterAWholeAnswerAreNobodysBusiness) {
  start_held();
  auto client = peer();
  const auto exchange = ask(client);
  respond(*exchange, "done");
  EXPECT_EQ(client.answer().body, "done");

  client.close();
  while (server_->stats().connections > 0)
    std::this_thread::yield();

  EXPECT_EQ(closed_.count(), 0);
}

} // namespace
} // namespace millrace::http::test
