#include "gateway/http/transport/request_reader.hpp"

#include <gtest/gtest.h>

namespace millrace::http {
namespace {

using Progress = RequestReader::Progress;

constexpr std::string_view kPost =
    "POST /v1/completions?a=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    "X-A: 1\r\nX-a: 2\r\n\r\nhello";
constexpr std::string_view kChunked =
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX-Trailer: 1\r\n\r\n";

/// Until it wants more or has ended.
Progress settle(RequestReader& reader) {
  auto progress = reader.advance();
  if (progress == Progress::head)
    progress = reader.advance();
  return progress;
}

/// The status with which a text is refused; 0: it is not.
int refused_with(std::string_view text, const ReaderLimits& limits = {}) {
  RequestReader reader(limits);
  reader.append(text);
  return settle(reader) == Progress::refused ? reader.refusal().status : 0;
}

std::string get_with(std::string_view headers) {
  return std::string("GET / HTTP/1.1\r\nHost: localhost\r\n").append(headers).append("\r\n");
}

TEST(RequestReader, TellsTheHeadBeforeTheBody) {
  RequestReader reader({});
  reader.append(kPost.substr(0, kPost.size() - 5));

  EXPECT_EQ(reader.advance(), Progress::head);
  EXPECT_EQ(reader.request().method, "POST");
  EXPECT_EQ(reader.advance(), Progress::need_more);
  reader.append("hello");
  EXPECT_EQ(reader.advance(), Progress::complete);
  EXPECT_EQ(reader.request().body, "hello");
}

TEST(RequestReader, SkipsEmptyLinesBeforeARequestHoweverTheyCome) {
  const std::string text = "\r\n\r\n" + get_with("") + "\r\n" + get_with("");
  for (const size_t piece : {size_t{1}, size_t{3}, text.size()}) {
    RequestReader reader({});
    int complete = 0;
    for (size_t at = 0; at < text.size(); at += piece) {
      reader.append(std::string_view(text).substr(at, piece));
      for (Progress progress; (progress = reader.advance()) != Progress::need_more;) {
        ASSERT_NE(progress, Progress::refused) << "in pieces of " << piece;
        if (progress == Progress::complete) {
          ++complete;
          reader.next();
        }
      }
    }
    EXPECT_EQ(complete, 2) << "in pieces of " << piece;
  }
}

TEST(RequestReader, HasARequestBeforeItsFirstByte) {
  RequestReader reader({});
  reader.append("\r\n");

  EXPECT_EQ(reader.advance(), Progress::need_more);
  EXPECT_EQ(reader.request().id, ""); // whoever waits for more in vain is answered by it
  EXPECT_EQ(reader.body_bytes(), 0u);
}

TEST(RequestReader, ReadsARequest) {
  RequestReader reader({});
  reader.append(kPost);

  ASSERT_EQ(settle(reader), Progress::complete);

  const auto& request = reader.request();
  EXPECT_EQ(request.path, "/v1/completions");
  EXPECT_EQ(request.query.at("a"), "1");
  EXPECT_EQ(request.headers.at("x-a"), "1, 2");
  EXPECT_EQ(request.body, "hello");
  EXPECT_TRUE(reader.framing().keep_alive);
}

TEST(RequestReader, ReadsTheSameFromAnyPieces) {
  for (const auto text : {kPost, kChunked})
    for (size_t cut = 1; cut < text.size(); ++cut) {
      RequestReader reader({});
      for (size_t at = 0; at < text.size(); at += cut) {
        reader.append(text.substr(at, cut));
        settle(reader);
      }
      ASSERT_EQ(reader.advance(), Progress::complete) << cut;
      EXPECT_EQ(reader.request().body, "hello");
      EXPECT_EQ(reader.buffered(), 0u);
    }
}

TEST(RequestReader, DoesNotTakeATrailerForAHeader) {
  RequestReader reader({});
  reader.append(kChunked);

  ASSERT_EQ(settle(reader), Progress::complete);

  EXPECT_FALSE(reader.request().headers.contains("x-trailer"));
}

TEST(RequestReader, ReadsPipelinedRequestsInOrder) {
  RequestReader reader({});
  reader.append(std::string(kPost) + "\r\n" + std::string(kChunked) + get_with(""));

  ASSERT_EQ(settle(reader), Progress::complete);
  EXPECT_EQ(reader.request().path, "/v1/completions");
  reader.next();
  ASSERT_EQ(settle(reader), Progress::complete);
  EXPECT_EQ(reader.request().body, "hello");
  reader.next();
  ASSERT_EQ(settle(reader), Progress::complete);
  EXPECT_EQ(reader.request().method, "GET");
  reader.next();
  EXPECT_EQ(reader.advance(), Progress::need_more);
}

TEST(RequestReader, KnowsWhenAConnectionGoesOn) {
  const auto keeps_alive = [](std::string_view text) {
    RequestReader reader({});
    reader.append(text);
    EXPECT_EQ(settle(reader), Progress::complete);
    return reader.framing().keep_alive;
  };
  EXPECT_TRUE(keeps_alive(get_with("")));
  EXPECT_FALSE(keeps_alive(get_with("Connection: close\r\n")));
  EXPECT_FALSE(keeps_alive(get_with("Connection: Upgrade, Close\r\n")));
  EXPECT_FALSE(keeps_alive("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps_alive("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

TEST(RequestReader, GivesHeadAsGet) {
  RequestReader reader({});
  reader.append("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");

  ASSERT_EQ(settle(reader), Progress::complete);

  EXPECT_EQ(reader.request().method, "GET");
  EXPECT_TRUE(reader.framing().head_only);
}

TEST(RequestReader, KnowsWhoWaitsForLeaveToSendABody) {
  RequestReader reader({});
  reader.append("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n");

  ASSERT_EQ(reader.advance(), Progress::head);

  EXPECT_TRUE(reader.framing().expects_continue);
}

TEST(RequestReader, RefusesLengthsThatTwoReadersMightReadDifferently) {
  const auto post = [](std::string_view headers) {
    return std::string("POST / HTTP/1.1\r\nHost: localhost\r\n")
        .append(headers)
        .append("\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n");
  };
  for (const char* headers :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5, 5\r\n", "Content-Length: +5\r\n",
        "Content-Length: -1\r\n", "Content-Length: 0x5\r\n", "Content-Length: 5 5\r\n",
        "Content-Length: \r\n", "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n", "Content-Length : 5\r\n", " Content-Length: 5\r\n"})
    EXPECT_GE(refused_with(post(headers)), 400) << headers;
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, gzip", "identity", "xchunked",
                             "\x0b"
                             "chunked"})
    EXPECT_GE(refused_with(post("Transfer-Encoding: " + std::string(coding) + "\r\n")), 400) << coding;
  EXPECT_EQ(refused_with("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(RequestReader, RefusesBrokenChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body :
       {"x\r\n", "-1\r\n", "3\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "ffffffffffffffffff\r\n",
        "3;\x01\r\nabc\r\n", "\r\n", "0\r\nContent-Length: 3\r\n\r\n", "0\r\nbroken\r\n\r\n"})
    EXPECT_GE(refused_with(head + body), 400) << body;
}

TEST(RequestReader, RefusesHeadsThatAreNotHttp) {
  EXPECT_EQ(refused_with(std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15)),
            400); // a TLS client
  EXPECT_EQ(refused_with("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(refused_with("GET / HTTP/3.0\r\n\r\n"), 505);
  EXPECT_EQ(refused_with("GET /\r\n\r\n"), 400);
  EXPECT_EQ(refused_with("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(refused_with("GET / HTTP/1.1\nHost: a\n\n"), 505); // ends of lines are CR LF
  EXPECT_EQ(refused_with(get_with("no colon\r\n")), 400);
  EXPECT_EQ(refused_with(get_with(std::string_view("X: a\0b\r\n", 8))), 400);
  EXPECT_EQ(refused_with(get_with("X: a\rb\r\n")), 400);
}

TEST(RequestReader, RefusesHeadersThatGoOnInTheNextLine) {
  for (const char* headers : {"X: a\r\n b\r\n", "X:\r\n b\r\n", "X: a\r\n\tb\r\n", "X: a\r\n \r\n"})
    EXPECT_EQ(refused_with(get_with(headers)), 400) << headers;
  EXPECT_EQ(refused_with(get_with("X:\r\nY: \r\nZ:  \t\r\n")), 0);
}

TEST(RequestReader, WantsExactlyOneHost) {
  EXPECT_EQ(refused_with("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refused_with(get_with("Host: localhost\r\n")), 400);
  EXPECT_EQ(refused_with("GET / HTTP/1.0\r\n\r\n"), 0);
}

TEST(RequestReader, RefusesMethodsThatNobodyKnows) {
  for (const char* method : {"CONNECT", "TRACE", "BREW", "get", "PROPFIND"})
    EXPECT_EQ(refused_with(std::string(method) + " / HTTP/1.1\r\nHost: a\r\n\r\n"), 501) << method;
}

TEST(RequestReader, RefusesContentCodings) {
  EXPECT_EQ(refused_with(get_with("Content-Encoding: gzip\r\n")), 501);
}

TEST(RequestReader, RefusesOtherExpectations) {
  EXPECT_EQ(refused_with(get_with("Expect: tea\r\n")), 417);
}

TEST(RequestReader, BoundsTheHeadAsAWhole) {
  const ReaderLimits limits{.max_header_bytes = 1'000};
  std::string many = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  while (many.size() < 1'100)
    many += "X-Small: 1\r\n";

  EXPECT_EQ(refused_with(many + "\r\n", limits), 431);
  EXPECT_EQ(refused_with(many, limits), 431); // before its end has come
  EXPECT_EQ(refused_with(get_with("X: " + std::string(2'000, 'x') + "\r\n"), limits), 431);
  EXPECT_EQ(refused_with("GET /" + std::string(2'000, 'x'), limits), 431);
  EXPECT_EQ(refused_with(get_with("X: " + std::string(900, 'x') + "\r\n"), limits), 0);

  RequestReader dripped(limits);
  auto progress = Progress::need_more;
  for (size_t i = 0; i < many.size() && progress == Progress::need_more; ++i) {
    dripped.append({&many[i], 1});
    progress = dripped.advance();
  }
  EXPECT_EQ(progress, Progress::refused);
  EXPECT_LE(dripped.buffered(), 1'001u);
}

TEST(RequestReader, BoundsTheBodyBeforeItComes) {
  const ReaderLimits limits{.max_body_bytes = 10};

  EXPECT_EQ(refused_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", limits), 413);
  EXPECT_EQ(refused_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789", limits), 0);
  const std::string chunked =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n";
  EXPECT_EQ(refused_with(chunked + "5\r\n", limits), 413);
  EXPECT_EQ(refused_with(chunked + "4\r\n6789\r\n0\r\n\r\n", limits), 0);
}

TEST(RequestReader, BoundsWhatStandsBetweenChunks) {
  const ReaderLimits limits{.max_header_bytes = 1'000};
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

  EXPECT_EQ(refused_with(head + "1;x=" + std::string(2'000, 'x'), limits), 431);
  EXPECT_EQ(refused_with(head + "0\r\nX: " + std::string(2'000, 'x'), limits), 431);
}

TEST(RequestReader, AnnouncedLengthTakesNoMemory) {
  RequestReader reader({.max_body_bytes = size_t{1} << 40});
  reader.append("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1099511627776\r\n\r\nx");

  EXPECT_EQ(settle(reader), Progress::need_more);

  EXPECT_LT(reader.request().body.capacity(), 4'096u);
}

} // namespace
} // namespace millrace::http
