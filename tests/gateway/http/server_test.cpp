#include "tests/gateway/http/server_test.hpp"

#include <stdexcept>
#include <system_error>

namespace millrace::http::test {
namespace {

using ServerAnswers = ServerTest;

TEST_F(ServerAnswers, WhatTheHandlerSays) {
  start_echo();

  const auto answer = peer().request("GET", "/health").answer();

  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "/health");
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
  EXPECT_TRUE(answer.headers.contains("date"));
  EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
}

TEST_F(ServerAnswers, PieceByPiece) {
  start_held();
  auto client = peer();
  client.request("POST", "/", "{}");
  const auto exchange = held_.take();
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
  on_loop(*exchange, [](Exchange& e) { e.write(""); }); // is no chunk: that would be the end
  on_loop(*exchange, [](Exchange& e) { e.end(); });
  EXPECT_EQ(client.receive_chunk(), "");

  client.request("GET", "/again");
  respond(*held_.take(), "second");
  EXPECT_EQ(client.answer().body, "second");
}

TEST_F(ServerAnswers, KeepsWhatAnAnswerHoldsUntilItsPeerHasTakenIt) {
  start_held();
  const auto answer = [this](size_t bytes) {
    auto kept = std::make_shared<int>();
    const std::weak_ptr<int> seen = kept;
    on_loop(*held_.take(), [&](Exchange& e) { e.respond({.body = std::string(bytes, 'x'), .kept = std::move(kept)}); });
    return seen;
  };
  auto client = peer();
  client.request("GET", "/");
  const auto taken = answer(1'000);
  client.answer();
  client.request("GET", "/again");
  const auto exchange = held_.take(); // kept by the test, and still nothing of the earlier answer is
  EXPECT_TRUE(taken.expired());

  std::optional<Peer> slow = peer(4'096);
  slow->request("GET", "/");
  const auto waiting = answer(32u << 20); // more than the kernel takes
  EXPECT_FALSE(waiting.expired());
  slow.reset();
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
       !waiting.expired() && std::chrono::steady_clock::now() < end;)
    std::this_thread::yield();
  EXPECT_TRUE(waiting.expired());
}

TEST_F(ServerAnswers, ManyRequestsOfOneConnection) {
  start_echo();
  auto client = peer();

  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(client.request("POST", "/" + std::to_string(i), "body").answer().body, "/" + std::to_string(i));

  EXPECT_EQ(server_->stats().accepted, 1u);
  EXPECT_EQ(server_->stats().requests, 100u);
}

TEST_F(ServerAnswers, RequestsThatCameAtOnceInTheirOrder) {
  start_held();
  auto client = peer();
  client.request("GET", "/1").request("POST", "/2", "two").request("GET", "/3");

  for (const char* path : {"/1", "/2", "/3"}) {
    const auto exchange = held_.take();
    EXPECT_EQ(exchange->request().path, path);
    EXPECT_TRUE(held_.empty());
    respond(*exchange, path);
  }

  for (const char* path : {"/1", "/2", "/3"})
    EXPECT_EQ(client.answer().body, path);
}

TEST_F(ServerAnswers, ThousandsOfRequestsThatCameAtOnce) {
  start_echo();
  auto client = peer();
  std::thread sender([&client] {
    for (int i = 0; i < 5'000; ++i)
      client.request("GET", "/" + std::to_string(i));
  });

  for (int i = 0; i < 5'000; ++i)
    ASSERT_EQ(client.answer().body, "/" + std::to_string(i));
  sender.join();
}

TEST_F(ServerAnswers, ARequestInChunks) {
  start([](auto exchange) { exchange->respond({.body = exchange->request().body}); });
  auto client = peer();

  client.request("POST", "/", "", "Transfer-Encoding: chunked\r\n")
      .send("5\r\nhello\r\n")
      .send("6;a=b\r\n world\r\n0\r\n\r\n");

  EXPECT_EQ(client.answer().body, "hello world");
}

TEST_F(ServerAnswers, HeadWithoutABody) {
  start_echo();
  auto client = peer();

  const auto answer = client.request("HEAD", "/health").answer(true);

  EXPECT_EQ(answer.headers.at("content-length"), "7");
  EXPECT_EQ(client.request("GET", "/next").answer().body, "/next"); // nothing stands between
}

TEST_F(ServerAnswers, TheHeadOfAStreamAndTellsTheHandlerThatNoMoreIsWanted) {
  Signal closed;
  start([&](auto exchange) {
    if (exchange->request().path != "/stream")
      return exchange->respond({});
    exchange->on_close([&] { closed.give(); });
    exchange->begin({});
    exchange->write("never seen");
  });
  auto client = peer();

  EXPECT_EQ(client.request("HEAD", "/stream").answer(true).status, 200);

  EXPECT_TRUE(closed.wait());
  EXPECT_EQ(client.request("GET", "/").answer().status, 200);
}

TEST_F(ServerAnswers, NoBodyWhereNoneMayBe) {
  start([](auto exchange) {
    exchange->respond({.status = exchange->request().path == "/" ? 200 : 204, .body = "x"});
  });
  auto client = peer();

  const auto answer = client.request("GET", "/204").answer(true);

  EXPECT_FALSE(answer.headers.contains("content-length"));
  EXPECT_EQ(client.request("GET", "/").answer().body, "x");
}

TEST_F(ServerAnswers, ClientsOfHttp10) {
  start([](auto exchange) {
    if (exchange->request().path == "/whole")
      return exchange->respond({.body = "whole"});
    exchange->begin({});
    exchange->write("a");
    exchange->write("b");
    exchange->end();
  });

  auto once = peer();
  EXPECT_EQ(once.send("GET /whole HTTP/1.0\r\n\r\n").answer().body, "whole");
  EXPECT_TRUE(once.at_end());

  auto again = peer();
  const auto first = again.send("GET /whole HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").answer();
  EXPECT_EQ(first.headers.at("connection"), "keep-alive");
  const auto stream = again.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").answer();
  EXPECT_EQ(stream.body, "ab"); // to the connection's end
  EXPECT_EQ(stream.headers.at("connection"), "close");
}

TEST_F(ServerAnswers, ClosesWhenAsked) {
  start_echo();
  auto client = peer();

  const auto answer = client.request("GET", "/", "", "Connection: close\r\n").answer();

  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerAnswers, AClientThatHasFinishedSending) {
  start_echo();
  auto client = peer();

  client.request("GET", "/last").finish_sending();

  EXPECT_EQ(client.answer().body, "/last");
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerAnswers, WithTheClientsRequestIdOrOneOfItsOwn) {
  start([](auto exchange) { exchange->respond({.body = exchange->request().id}); });
  auto client = peer();

  const auto own = client.request("GET", "/", "", "X-Request-Id: trace-1.A_b\r\n").answer();
  EXPECT_EQ(own.headers.at("x-request-id"), "trace-1.A_b");
  EXPECT_EQ(own.body, "trace-1.A_b");
  const auto drawn = client.request("GET", "/").answer();
  EXPECT_EQ(drawn.headers.at("x-request-id").size(), 32u);
  for (const std::string& id :
       {std::string(129, 'a'), std::string("a b"), std::string("\"x\""), std::string("\xc3\xa9")}) {
    const auto answer = client.request("GET", "/", "", "X-Request-Id: " + id + "\r\n").answer();
    EXPECT_EQ(answer.headers.at("x-request-id").size(), 32u) << id;
    EXPECT_EQ(answer.headers.at("x-request-id"), answer.body);
  }
}

TEST_F(ServerAnswers, LeaveToSendABody) {
  start([](auto exchange) { exchange->respond({.body = exchange->request().body}); });
  auto client = peer();

  client.request("POST", "/", "", "Expect: 100-continue\r\nContent-Length: 5\r\n");
  ASSERT_TRUE(client.receive_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send("hello");

  EXPECT_EQ(client.answer().body, "hello");
}

TEST_F(ServerAnswers, KeepsHeadersOnTheirLines) {
  start([](auto exchange) { exchange->respond({.headers = {{"X-Echo", "a\r\nX-Evil: 1\r\n\r\nbody"}}}); });

  const auto answer = peer().request("GET", "/").answer();

  EXPECT_FALSE(answer.headers.contains("x-evil"));
  EXPECT_EQ(answer.headers.at("x-echo"), "a  X-Evil: 1    body");
}

TEST_F(ServerAnswers, ALargeAnswerToASlowReaderWhole) {
  const std::string large(8u << 20, 'x');
  start([&](auto exchange) { exchange->respond({.body = large}); });

  EXPECT_EQ(peer(4'096).request("GET", "/").answer().body, large);
}

TEST_F(ServerAnswers, WhenTheHandlerThrows) {
  start([](auto exchange) {
    if (exchange->request().path == "/begun") {
      exchange->begin({});
      exchange->write("x");
    }
    throw std::runtime_error("secret");
  });
  auto client = peer();

  const auto answer = client.request("GET", "/").answer();
  EXPECT_EQ(answer.status, 500);
  EXPECT_NE(answer.body.find("internal_error"), std::string::npos);
  EXPECT_EQ(answer.body.find("secret"), std::string::npos);
  EXPECT_FALSE(client.request("GET", "/begun").answer().whole); // cut, so that nobody takes it for the whole
}

TEST_F(ServerAnswers, WhenACallbackThrows) {
  start([](auto exchange) { exchange->post([] { throw std::runtime_error("x"); }); });

  EXPECT_EQ(peer().request("GET", "/").answer().status, 500);
}

using ExchangeCalls = ServerTest;

TEST_F(ExchangeCalls, RunLater) {
  start([](auto exchange) {
    exchange->after(std::chrono::milliseconds(1), [exchange] { exchange->respond({.body = "later"}); });
  });

  EXPECT_EQ(peer().request("GET", "/").answer().body, "later");
}

TEST_F(ExchangeCalls, AreDroppedAtTheEndOfTheAnswer) {
  Signal called;
  const auto token = std::make_shared<int>(0);
  start([&, weak = std::weak_ptr(token)](auto exchange) {
    const auto held = weak.lock();
    exchange->after(std::chrono::hours(1), [&called, exchange, held] { called.give(); });
    exchange->on_close([&called, exchange, held] { called.give(); });
    exchange->on_drained([&called, exchange, held] { called.give(); });
    exchange->respond({});
  });
  auto client = peer();

  client.request("GET", "/").answer();
  client.request("GET", "/").answer(); // now the first has ended

  server_.reset();
  EXPECT_EQ(token.use_count(), 1); // though the exchange was in its own callbacks
  EXPECT_EQ(called.count(), 0);
}

TEST_F(ExchangeCalls, DoNothingAfterTheEnd) {
  start_held();
  auto client = peer();
  client.request("GET", "/");
  const auto exchange = held_.take();
  respond(*exchange, "once");
  client.answer();
  client.request("GET", "/next");
  const auto next = held_.take();

  on_loop(*exchange, [](Exchange& e) {
    e.write("x");
    e.end();
    e.respond({});
    e.begin({});
    e.on_close([] {});
    e.after(std::chrono::milliseconds(0), [] {});
    EXPECT_EQ(e.queued(), 0u);
  });

  respond(*next, "next");
  EXPECT_EQ(client.answer().body, "next");
}

TEST_F(ExchangeCalls, ArePossibleWhenTheServerHasGone) {
  start_held();
  auto client = peer();
  client.request("GET", "/");
  const auto exchange = held_.take();

  server_.reset();

  exchange->post([] { ADD_FAILURE() << "there is no loop"; });
  EXPECT_EQ(exchange->request().path, "/");
}

TEST_F(ExchangeCalls, OfManyThreadsReachTheLoop) {
  start_held();
  auto client = peer();
  client.request("GET", "/");
  const auto exchange = held_.take();
  int count = 0; // of the loop's thread
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1'000; ++i)
        exchange->post([&count] { ++count; });
    });
  for (auto& thread : threads)
    thread.join();

  on_loop(*exchange, [&](Exchange&) { EXPECT_EQ(count, 4'000); });
}

TEST_F(ExchangeCalls, TellWhenASlowReaderHasTakenAll) {
  constexpr int kPieces = 200;
  const std::string piece(64u << 10, 'x');
  start([&](std::shared_ptr<Exchange> exchange) {
    const auto left = std::make_shared<int>(kPieces);
    const auto pump = [exchange = exchange.get(), left,
                       &piece] { // the callback must not keep its own exchange
      while (*left > 0 && exchange->queued() < piece.size()) {
        --*left;
        exchange->write(piece);
      }
      if (*left == 0)
        exchange->end();
    };
    exchange->begin({});
    exchange->on_drained(pump);
    pump();
  });

  const auto answer = peer(4'096).request("GET", "/").answer();

  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(answer.body.size(), kPieces * piece.size());
}

TEST_F(ExchangeCalls, ThatOverrunTheQueueCostThePeer) {
  options_.max_queued_bytes = 100'000;
  Signal closed;
  start([&](auto exchange) {
    if (exchange->request().path != "/flood")
      return exchange->respond({});
    exchange->on_close([&] { closed.give(); });
    exchange->begin({});
    for (int i = 0; i < 11; ++i)
      exchange->write(std::string(10'000, 'x'));
    EXPECT_LE(exchange->queued(), 101'000u);
  });
  auto client = peer();

  EXPECT_FALSE(client.request("GET", "/flood").answer().whole);

  EXPECT_TRUE(closed.wait());
  expect_others_are_served();
}

using ServerDrains = ServerTest;

TEST_F(ServerDrains, ClosingWhoIdlesAndAnsweringWhoWaits) {
  start_held();
  auto idle = peer(), waiting = peer(), streaming = peer();
  idle.request("GET", "/");
  respond(*held_.take(), "");
  idle.answer();
  streaming.request("GET", "/");
  const auto stream = held_.take();
  Answered head;
  on_loop(*stream, [](Exchange& e) { e.begin({}); });
  streaming.receive_head(head);
  waiting.request("GET", "/");
  const auto exchange = held_.take();

  server_->drain();

  EXPECT_TRUE(idle.at_end());
  EXPECT_FALSE(peer().connected());
  respond(*exchange, "answered");
  EXPECT_EQ(waiting.answer().body, "answered");
  EXPECT_TRUE(waiting.at_end());
  on_loop(*stream, [](Exchange& e) {
    e.write("more");
    e.end();
  });
  EXPECT_EQ(streaming.receive_chunk(), "more");
  EXPECT_EQ(streaming.receive_chunk(), "");
  EXPECT_TRUE(streaming.at_end());
}

TEST_F(ServerDrains, TellingOfItInAnswersToCome) {
  start_held();
  auto late = peer();
  late.send("GET /late HTTP/1.1\r\nHost: loc"); // has begun
  auto first = peer();
  first.request("GET", "/");
  const auto exchange = held_.take();
  server_->drain();
  on_loop(*exchange, [](Exchange&) {}); // the loop has seen it

  late.send("alhost\r\n\r\n");
  respond(*held_.take(), "");

  EXPECT_EQ(late.answer().headers.at("connection"), "close");
}

TEST_F(ServerDrains, AtItsEndTellingTheHandlerOfEachPeer) {
  Signal closed;
  start_held();
  auto client = peer();
  client.request("GET", "/");
  const auto exchange = held_.take();
  on_loop(*exchange, [&](Exchange& e) { e.on_close([&] { closed.give(); }); });

  server_.reset();

  EXPECT_EQ(closed.count(), 1);
  EXPECT_TRUE(client.at_end());
}

TEST(ServerEndpoint, IsTheOneInUse) {
  const auto nothing = [](auto) {};
  EXPECT_TRUE(Server({.port = 0}, {}, nothing).endpoint().starts_with("http://127.0.0.1:"));
  EXPECT_TRUE(
      Server({.address = "localhost", .port = 0}, {}, nothing).endpoint().starts_with("http://127.0.0.1:"));
  EXPECT_TRUE(Server({.address = "::1", .port = 0}, {}, nothing).endpoint().starts_with("http://[::1]:"));
}

TEST(ServerEndpoint, IsNamedWhenItIsTaken) {
  const Server first({.port = 0}, {}, [](auto) {});
  const auto port = first.endpoint().substr(first.endpoint().rfind(':') + 1);
  try {
    const Server second({.port = static_cast<uint16_t>(std::stoi(port))}, {}, [](auto) {});
    ADD_FAILURE();
  } catch (const std::system_error& e) {
    EXPECT_NE(std::string(e.what()).find(first.endpoint()), std::string::npos) << e.what();
    EXPECT_EQ(e.code().value(), EADDRINUSE);
  }
}

TEST(ServerEndpoint, BeyondLoopbackNeedsLeaveKeysAndTls) {
  const auto complaint = [](const ServerOptions& options) -> std::string {
    try {
      const Server server(options, {}, [](auto) {});
      return "";
    } catch (const std::exception& e) {
      return e.what();
    }
  };
  ServerOptions options{.address = "0.0.0.0", .port = 0};
  EXPECT_NE(complaint(options).find("not allowed"), std::string::npos);
  options.allow_remote = true;
  EXPECT_NE(complaint(options).find("API keys"), std::string::npos);
  options = {.address = "somewhere", .port = 0};
  EXPECT_NE(complaint(options).find("somewhere"), std::string::npos);
  options = {.port = 0, .certificate = "cert.pem"};
  EXPECT_NE(complaint(options).find("private key"), std::string::npos);
}

TEST_F(ServerTest, ReportsEachAnswer) {
  std::mutex mutex;
  std::vector<std::string> reports;
  options_.on_answer = [&](const millrace::http::Answered& answer) {
    const std::lock_guard lock(mutex);
    reports.push_back(answer.request.path + " " + std::to_string(answer.status) +
                      (answer.whole ? "" : " cut"));
  };
  start([](auto exchange) {
    if (exchange->request().path != "/left")
      exchange->respond({.status = 404});
  });
  peer().request("GET", "/a").answer();
  peer().request("BREW", "/b").answer();
  {
    auto client = peer();
    client.request("GET", "/left");
    while (server_->stats().requests < 2)
      std::this_thread::yield();
  }

  server_.reset();

  EXPECT_EQ(reports, (std::vector<std::string>{"/a 404", " 501", "/left 0 cut"}));
}

} // namespace
} // namespace millrace::http::test
