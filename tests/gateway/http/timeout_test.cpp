#include "tests/gateway/http/server_test.hpp"

namespace millrace::http::test {
namespace {

using namespace std::chrono_literals;

using Timeouts = ServerTest;

TEST_F(Timeouts, EndAHeadThatDoesNotCome) {
  options_.header_timeout = 20ms;
  start_echo();
  auto client = peer();

  const auto answer = client.send("GET / HTTP/1.1\r\nHost: loc").answer();

  EXPECT_EQ(answer.status, 408);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(server_->stats().timeouts, 1u);
}

TEST_F(Timeouts, EndAHeadThatComesTooSlowly) {
  options_.header_timeout = 50ms;
  start_echo();
  auto client = peer();
  std::thread dripper([&client] {
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    for (int i = 0; i < 100; ++i) {
      client.send("x");
      std::this_thread::sleep_for(2ms); // the pace of the attack, not a wait for an event
    }
  });

  EXPECT_EQ(client.answer().status, 408);
  dripper.join();
}

TEST_F(Timeouts, EndABodyThatDoesNotCome) {
  options_.body_timeout = 20ms;
  start_echo();

  EXPECT_EQ(peer().request("POST", "/", "", "Content-Length: 5\r\n").send("he").answer().status, 408);
}

TEST_F(Timeouts, EndAnIdleConnectionSilently) {
  options_.idle_timeout = 20ms;
  start_echo();
  auto silent = peer(), client = peer();

  EXPECT_EQ(client.request("GET", "/").answer().status, 200);

  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(silent.at_end());
  EXPECT_EQ(server_->stats().timeouts, 0u);
}

TEST_F(Timeouts, DoNotCountWhileAnAnswerIsMade) {
  options_.idle_timeout = options_.header_timeout = options_.body_timeout = options_.write_timeout = 5ms;
  start([](auto exchange) {
    exchange->after(50ms, [exchange] { exchange->respond({.body = "in its time"}); });
  });

  EXPECT_EQ(peer().request("GET", "/").answer().body, "in its time");
}

TEST_F(Timeouts, EndAPeerThatTakesNothing) {
  options_.write_timeout = 20ms;
  Signal closed;
  start([&](auto exchange) {
    exchange->on_close([&] { closed.give(); });
    exchange->respond({.body = std::string(16u << 20, 'x')});
  });
  auto client = peer(4'096);

  client.request("GET", "/");

  EXPECT_TRUE(closed.wait());
  EXPECT_EQ(server_->stats().timeouts, 1u);
  EXPECT_FALSE(client.answer().whole);
}

TEST_F(Timeouts, SpareASlowPeerThatTakesSome) {
  options_.write_timeout = 500ms;
  start([](auto exchange) { exchange->respond({.body = std::string(2u << 20, 'x')}); });
  auto client = peer(4'096);
  client.request("GET", "/", "", "Connection: close\r\n");
  Answered head;
  client.receive_head(head);

  for (int i = 0; i < 12; ++i) { // longer than the limit in all
    client.receive();
    std::this_thread::sleep_for(60ms); // the pace of the reader, not a wait for an event
  }

  EXPECT_GT(client.rest().size(), size_t{1} << 20);
  EXPECT_EQ(server_->stats().timeouts, 0u);
}

} // namespace
} // namespace millrace::http::test
