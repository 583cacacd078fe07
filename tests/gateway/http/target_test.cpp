#include "gateway/http/transport/target.hpp"

#include <gtest/gtest.h>

namespace millrace::http {
namespace {

TEST(Target, DecodesPathAndQuery) {
  const auto target = parse_target("/v1/streams/a%2Fb?from_seq=0%3A7&name=x+y%2B&flag");

  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/v1/streams/a/b");
  EXPECT_EQ(target->query.at("from_seq"), "0:7");
  EXPECT_EQ(target->query.at("name"), "x y+");
  EXPECT_EQ(target->query.at("flag"), "");
}

TEST(Target, KeepsAPlusOfThePath) {
  EXPECT_EQ(parse_target("/a+b")->path, "/a+b");
}

TEST(Target, TakesTheFormThatAProxyGets) {
  EXPECT_EQ(parse_target("http://localhost:8080/v1/models?x=1")->path, "/v1/models");
  EXPECT_EQ(parse_target("https://localhost")->path, "/");
}

TEST(Target, DropsAFragment) {
  const auto target = parse_target("/a?b=1#?c=2");

  EXPECT_EQ(target->path, "/a");
  EXPECT_EQ(target->query.at("b"), "1");
}

TEST(Target, RefusesWhatIsNotAPath) {
  for (const char* text : {"", "*", "localhost:80", "v1/models", "http://localhost?x", "?x=1"})
    EXPECT_FALSE(parse_target(text)) << text;
}

TEST(Target, RefusesBrokenEscapes) {
  for (const char* text : {"/%", "/%4", "/%zz", "/%4g", "/?a=%", "/?%=1", "/?a=%f"})
    EXPECT_FALSE(parse_target(text)) << text;
}

TEST(Target, RefusesControlCharactersInThePath) {
  for (const char* text : {"/a%00", "/a%0d%0ab", "/%7f"})
    EXPECT_FALSE(parse_target(text)) << text;
}

TEST(Target, RefusesAParameterThatComesTwice) {
  EXPECT_FALSE(parse_target("/?a=1&b=2&a=3"));
}

TEST(Target, RefusesTooManyParameters) {
  std::string text = "/?";
  for (int i = 0; i < 64; ++i)
    text += "p" + std::to_string(i) + "=1&";
  EXPECT_TRUE(parse_target(text));

  EXPECT_FALSE(parse_target(text + "one_more"));
}

} // namespace
} // namespace millrace::http
