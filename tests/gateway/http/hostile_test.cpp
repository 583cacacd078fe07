// What a stranger may send. Each is refused in the API's shape, and others are served meanwhile.

#include "tests/gateway/http/server_test.hpp"

#include <random>

namespace millrace::http::test {
namespace {

class HostilePeers : public ServerTest {
protected:
  void expect_refusal(const Answered& answer, int status) const {
    EXPECT_EQ(answer.status, status);
    EXPECT_TRUE(answer.whole);
    EXPECT_EQ(answer.headers.at("content-type"), "application/json");
    EXPECT_TRUE(answer.headers.contains("x-request-id"));
    EXPECT_TRUE(answer.body.starts_with(R"({"error":{"message":")")) << answer.body;
    for (const char* field : {R"("type":)", R"("param":null)", R"("code":)"})
      EXPECT_NE(answer.body.find(field), std::string::npos) << answer.body;
  }
};

TEST_F(HostilePeers, GetRefusalsInTheShapeOfTheApi) {
  start_echo();
  auto client = peer();

  expect_refusal(client.send("nonsense\r\n\r\n").answer(), 400);

  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(server_->stats().refused, 1u);
  EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(HostilePeers, CannotSmuggleASecondRequest) {
  start_echo();
  auto client = peer();
  client.send(
      "POST /first HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n");

  expect_refusal(client.answer(), 400);

  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(HostilePeers, AreToldThatABodyIsTooLargeBeforeTheySendIt) {
  options_.max_body_bytes = 1'000;
  start_echo();
  auto client = peer();

  const auto answer =
      client.request("POST", "/", "", "Content-Length: 1001\r\nExpect: 100-continue\r\n").answer();

  expect_refusal(answer, 413);
  EXPECT_EQ(answer.headers.at("connection"), "close");
}

TEST_F(HostilePeers, GetTheirRefusalThoughTheySendOn) {
  options_.max_body_bytes = 1'000;
  start_echo();
  auto client = peer();
  const std::string body(4u << 20, 'x');

  client.request("POST", "/", body);

  expect_refusal(client.answer(), 413);
}

TEST_F(HostilePeers, AreStoppedInTheMidstOfChunks) {
  options_.max_body_bytes = 1'000;
  start_echo();
  auto client = peer();
  client.request("POST", "/", "", "Transfer-Encoding: chunked\r\n");
  for (int i = 0; i < 10; ++i)
    client.send("80\r\n" + std::string(128, 'x') + "\r\n");

  expect_refusal(client.answer(), 413);
}

TEST_F(HostilePeers, AreStoppedInTheMidstOfHeaders) {
  start_echo();
  auto client = peer();
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\n");
  for (int i = 0; i < 2'000; ++i)
    client.send("X-" + std::to_string(i) + ": 1\r\n");

  expect_refusal(client.answer(), 431);
}

TEST_F(HostilePeers, CannotFillTheMemoryWithBodies) {
  options_.max_total_body_bytes = 100'000;
  start_held();
  auto first = peer(), second = peer();
  const std::string body(80'000, 'x');
  first.request("POST", "/", body);
  const auto exchange = held_.take();

  expect_refusal(second.request("POST", "/", body).answer(), 503);

  respond(*exchange, "done");
  EXPECT_EQ(first.answer().body, "done");
  first.request("POST", "/", body); // there is room again
  respond(*held_.take(), "again");
  EXPECT_EQ(first.answer().body, "again");
}

TEST_F(HostilePeers, DoNotKeepOthersFromBodiesByAnswersThatLast) {
  options_.max_total_body_bytes = 100'000;
  start_held();
  auto first = peer(), second = peer();
  const std::string body(80'000, 'x');
  first.request("POST", "/", body);
  const auto lasting = held_.take();
  on_loop(*lasting, [&](Exchange& exchange) { EXPECT_EQ(exchange.take_body(), body); });

  second.request("POST", "/", body);
  respond(*held_.take(), "done");

  EXPECT_EQ(second.answer().body, "done");
  respond(*lasting, "at last");
  EXPECT_EQ(first.answer().body, "at last");
}

TEST_F(HostilePeers, WithoutAKeyGetNoLeaveToSendABody) {
  std::string keys = testing::TempDir() + "millrace_hostile_keys_XXXXXX";
  const int fd = ::mkstemp(keys.data());
  ASSERT_GT(::write(fd, "alice sk-alice-0123456789\n", 26), 0);
  ::close(fd);
  options_.api_keys = keys;
  open_paths_ = {"/health"};
  start([](auto exchange) { exchange->respond({.body = exchange->request().principal.name}); });
  ::unlink(keys.c_str());

  const auto refused =
      peer().request("POST", "/", "", "Content-Length: 5\r\nExpect: 100-continue\r\n").answer();
  expect_refusal(refused, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  auto client = peer();
  expect_refusal(client.request("GET", "/").answer(), 401); // read to its end, so the connection lives
  EXPECT_EQ(client.request("GET", "/health").answer().status, 200);
  EXPECT_EQ(client.request("GET", "/", "", "Authorization: Bearer sk-alice-0123456789\r\n").answer().body,
            "http:alice");
  EXPECT_EQ(server_->stats().unauthorized, 2u);
}

TEST_F(HostilePeers, OnAPageOfAnotherSiteAreRefused) {
  start_echo();
  auto client = peer();

  expect_refusal(client.send("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").answer(), 403);
  expect_refusal(client.request("POST", "/", "{}", "Origin: https://evil.example\r\n").answer(), 403);
  EXPECT_EQ(client.request("POST", "/", "{}").answer().status, 200);
}

TEST_F(HostilePeers, MaySendAnyBytes) {
  start_echo();
  std::mt19937 random(7);
  const std::string_view words[] = {"GET ",
                                    "POST ",
                                    "/",
                                    " HTTP/1.1",
                                    "\r\n",
                                    "\r\n\r\n",
                                    "Host: a",
                                    "Content-Length: ",
                                    "Transfer-Encoding: chunked",
                                    "0",
                                    "5",
                                    "ffffffff",
                                    "%",
                                    "?",
                                    "\n",
                                    "\r",
                                    std::string_view("\0", 1),
                                    ":",
                                    "Expect: 100-continue",
                                    "Connection: close",
                                    "x"};
  for (int round = 0; round < 300; ++round) {
    auto client = peer();
    std::string text;
    for (int n = int(random() % 40); n > 0; --n)
      text += random() % 8 ? words[random() % std::size(words)]
                           : std::string_view("\xff\x80\x01", 1 + random() % 3);
    client.send(text).finish_sending();
    client.rest(); // ends, in time
  }

  expect_others_are_served();
}

TEST_F(HostilePeers, MayLeaveAtAnyByte) {
  start_echo();
  const std::string_view text = "POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
  for (size_t n = 0; n <= text.size(); ++n) {
    peer().send(text.substr(0, n)).reset();
    peer().send(text.substr(0, n)).close();
  }

  expect_others_are_served();
  while (server_->stats().connections > 0)
    std::this_thread::yield();
}

} // namespace
} // namespace millrace::http::test
