#include "gateway/json.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace millrace {
namespace {

Token token() {
  Token token;
  token.request.bytes[15] = 0xab;
  token.seq = 3;
  token.id = 42;
  token.bytes = {"\xc3\x28"};
  token.text = "a\"\n";
  token.logprob = -0.1f;
  token.top = {{42, {"a"}, -0.1f}};
  return token;
}

TEST(Json, NamesTheFieldsOfAMessageInTheirOrderAfterItsType) {
  EXPECT_EQ(
      to_json(token()),
      R"({"type":"token","request":"000000000000000000000000000000ab","choice":0,"epoch":0,"seq":3,"id":42,)"
      R"("bytes":[195,40],"text":"a\"\n","logprob":-0.1,"top":[{"id":42,"bytes":[97],"logprob":-0.1}]})");
}

TEST(Json, WritesTheEventThatIsHeld) {
  const Event event = token();

  EXPECT_EQ(to_json(event), to_json(token()));
}

TEST(Json, WritesFloatsThatReadBackAsTheSameFloat) {
  for (const float value : {0.1f, -1e-42f, 16777217.0f, 3.4028235e38f, -0.0f, 1.0f, 1e20f}) {
    Token token;
    token.logprob = value;

    const auto read = nlohmann::json::parse(to_json(token))["logprob"].get<double>();

    EXPECT_EQ(float(read), value);
    EXPECT_EQ(std::signbit(read), std::signbit(value));
  }
}

TEST(Json, WritesLargeIntegersWhole) {
  Started started;
  started.seed = std::numeric_limits<uint64_t>::max();

  EXPECT_NE(to_json(started).find("\"seed\":18446744073709551615"), std::string::npos);
}

TEST(Json, HasNullForWhatIsNotANumber) {
  Token token;
  token.logprob = -std::numeric_limits<float>::infinity();

  EXPECT_TRUE(nlohmann::json::parse(to_json(token))["logprob"].is_null());
}

TEST(Json, ReplacesWhatIsNotUtf8) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      Token token;
      token.text = {char(first), char(second)};

      const auto read = nlohmann::json::parse(to_json(token), nullptr, false);

      ASSERT_FALSE(read.is_discarded()) << first << ' ' << second;
    }
}

TEST(Json, WritesOptionalsAndMaps) {
  Generate request;
  request.prompt = "x";
  request.sampling.logit_bias = {{7, -1.5f}};

  const auto read = nlohmann::json::parse(to_json(request));

  EXPECT_EQ(read["prompt"], "x");
  EXPECT_TRUE(read["prompt_ids"].is_null());
  EXPECT_EQ(read["sampling"]["logit_bias"]["7"], -1.5);
  EXPECT_EQ(read["add_bos"], true);
}

} // namespace
} // namespace millrace
