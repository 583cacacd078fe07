#include "gateway/http/transport/guard.hpp"

#include <gtest/gtest.h>

namespace millrace::http {
namespace {

using Headers = std::map<std::string, std::string>;

Request request(Headers headers, std::string method = "POST", std::string path = "/v1/completions") {
  Request r;
  r.method = std::move(method);
  r.path = std::move(path);
  r.headers = std::move(headers);
  return r;
}

/// 0 if it is admitted.
int refused_with(const Guard& guard, const Request& r) {
  const auto verdict = guard.admit(r);
  const auto* refusal = std::get_if<Refusal>(&verdict);
  return refusal ? refusal->status : 0;
}

std::string name_of(const Guard& guard, const Request& r) {
  const auto verdict = guard.admit(r);
  const auto* who = std::get_if<Principal>(&verdict);
  return who ? who->name : "refused";
}

TEST(KeylessGuard, AdmitsNobodyInParticular) {
  const Guard guard(std::nullopt, {});

  EXPECT_EQ(name_of(guard, request({{"host", "127.0.0.1:8080"}})), "");
}

TEST(KeylessGuard, KnowsTheNamesOfTheLoopback) {
  for (const char* host : {"localhost", "LOCALHOST:8080", "localhost.", "app.localhost:1", "127.0.0.1",
                           "127.1.2.3:80", "[::1]", "[::1]:8080"})
    EXPECT_TRUE(names_loopback(host)) << host;
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost", ".localhost",
        "10.0.0.1", "[::2]", "::1", "0.0.0.0", "0x7f000001", "[::1", "localhost@evil.example"})
    EXPECT_FALSE(names_loopback(host)) << host;
}

TEST(KeylessGuard, RefusesANameThatWasReboundToTheLoopback) {
  const Guard guard(std::nullopt, {"/health"});

  EXPECT_EQ(refused_with(guard, request({{"host", "evil.example:8080"}})), 403);
  EXPECT_EQ(refused_with(guard, request({{"host", "evil.example:8080"}}, "GET", "/health")), 403);
}

TEST(KeylessGuard, AdmitsOldClientsWithoutAHost) {
  EXPECT_EQ(refused_with(Guard(std::nullopt, {}), request({})), 0);
}

TEST(KeylessGuard, RefusesPagesOfOtherOrigins) {
  const Guard guard(std::nullopt, {});

  for (const char* origin :
       {"https://evil.example", "null", "http://127.0.0.1:9000", "http://127.0.0.1", "127.0.0.1:8080", ""})
    EXPECT_EQ(refused_with(guard, request({{"host", "127.0.0.1:8080"}, {"origin", origin}})), 403) << origin;
  EXPECT_EQ(refused_with(guard, request({{"host", "127.0.0.1:8080"}, {"origin", "http://127.0.0.1:8080"}})),
            0);
}

TEST(KeylessGuard, RefusesWhatABrowserMarksAsOfAnotherSite) {
  const Guard guard(std::nullopt, {});
  const auto with_site = [](const char* site, const char* method) {
    return request({{"host", "localhost:8080"}, {"sec-fetch-site", site}}, method);
  };

  EXPECT_EQ(refused_with(guard, with_site("cross-site", "POST")), 403);
  EXPECT_EQ(refused_with(guard, with_site("same-site", "DELETE")), 403);
  EXPECT_EQ(refused_with(guard, with_site("same-origin", "POST")), 0);
  EXPECT_EQ(refused_with(guard, with_site("none", "POST")), 0);
  EXPECT_EQ(refused_with(guard, with_site("cross-site", "GET")), 0);
}

class KeyedGuard : public testing::Test {
protected:
  Guard guard_{ApiKeys::parse("alice sk-alice-0123456789"), {"/health"}};
};

TEST_F(KeyedGuard, KnowsTheBearerOfAKey) {
  for (const char* header :
       {"Bearer sk-alice-0123456789", "bearer sk-alice-0123456789", "BEARER   sk-alice-0123456789"})
    EXPECT_EQ(name_of(guard_, request({{"authorization", header}})), "http:alice") << header;
}

TEST_F(KeyedGuard, RefusesAllElse) {
  EXPECT_EQ(refused_with(guard_, request({})), 401);
  for (const char* header :
       {"", "Bearer", "Bearer ", "Bearer wrong", "sk-alice-0123456789", "Basic sk-alice-0123456789",
        "Bearer sk-alice-0123456789 ", "Bearer sk-alice-0123456789, Bearer sk-alice-0123456789"})
    EXPECT_EQ(refused_with(guard_, request({{"authorization", header}})), 401) << header;
}

TEST_F(KeyedGuard, LeavesOpenPathsOpen) {
  EXPECT_EQ(name_of(guard_, request({}, "GET", "/health")), "");
  EXPECT_EQ(name_of(guard_, request({{"authorization", "Bearer wrong"}}, "GET", "/health")), "");
  EXPECT_EQ(name_of(guard_, request({{"authorization", "Bearer sk-alice-0123456789"}}, "GET", "/health")),
            "http:alice");
  EXPECT_EQ(refused_with(guard_, request({}, "GET", "/healthy")), 401);
  EXPECT_EQ(refused_with(guard_, request({}, "GET", "/health/")), 401);
}

TEST_F(KeyedGuard, AsksNotForTheHost) {
  EXPECT_EQ(
      name_of(guard_, request({{"authorization", "Bearer sk-alice-0123456789"}, {"host", "api.example"}})),
      "http:alice");
}

} // namespace
} // namespace millrace::http
