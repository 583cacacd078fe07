#include "tests/gateway/http/server_test.hpp"

namespace millrace::http::test {
namespace {

using ServerAnswers = ServerTest;

TEST_F(ServerAnswers, AGetWithWhatTheHandlerSays) {
  start([](auto exchange) { exchange->respond({.body = exchange->request().path}); });

  const auto answer = peer().request("GET", "/health").answer();

  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "/health");
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
  EXPECT_TRUE(answer.headers.contains("date"));
}

TEST_F(ServerAnswers, AStreamPieceByPiece) {
  Held held;
  start(held.handler());
  auto client = peer();
  client.request("POST", "/", "{}");
  const auto exchange = held.take();
  Answered head;

  on_loop(*exchange, [](Exchange& e) {
    e.begin({.content_type = "text/event-stream"});
    e.write("data: 1\n\n");
  });
  ASSERT_TRUE(client.receive_head(head));
  EXPECT_EQ(head.headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(client.receive_chunk(), "data: 1\n\n");
  on_loop(*exchange, [](Exchange& e) { e.write("data: 2\n\n"); });
  EXPECT_EQ(client.receive_chunk(), "data: 2\n\n");
  on_loop(*exchange, [](Exchange& e) { e.end(); });
  EXPECT_EQ(client.receive_chunk(), "");

  client.request("GET", "/again");
  on_loop(*held.take(), [](Exchange& e) { e.respond({.body = "second"}); });
  EXPECT_EQ(client.answer().body, "second");
}

} // namespace
} // namespace millrace::http::test
