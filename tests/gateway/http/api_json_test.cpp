#include "gateway/http/api/body.hpp"
#include "gateway/http/api/json_document.hpp"

#include <gtest/gtest.h>

namespace millrace::http {
namespace {

JsonProblem problem_of(std::string_view text, const JsonLimits& limits = {}) {
  auto read = read_json(text, limits);
  const auto* problem = std::get_if<JsonProblem>(&read);
  return problem ? *problem : JsonProblem{"", "(none)"};
}

Json value_of(std::string_view text) {
  auto read = read_json(text, {});
  if (const auto* problem = std::get_if<JsonProblem>(&read))
    ADD_FAILURE() << problem->message;
  return std::holds_alternative<Json>(read) ? std::get<Json>(read) : Json();
}

std::string nested(size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST(JsonDocument, KeepsTheOrderOfMembers) {
  EXPECT_EQ(write_json(value_of(R"({"z":1,"a":[true,null,-2,2.5],"m":{"b":"x","a":{}}})")),
            R"({"z":1,"a":[true,null,-2,2.5],"m":{"b":"x","a":{}}})");
}

TEST(JsonDocument, TakesSixtyFourLevelsAndNoMore) {
  EXPECT_EQ(write_json(value_of(nested(64))), nested(64));
  for (const size_t levels : {65u, 3'000u, 1'000'000u})
    EXPECT_NE(problem_of(nested(levels)).message.find("nested too deeply"), std::string::npos) << levels;
}

TEST(JsonDocument, NamesTheMemberThatIsTooDeep) {
  const std::string text = R"({"n":1,"tools":)" + nested(3'000) + "}";

  EXPECT_EQ(problem_of(text).member, "tools");
}

TEST(JsonDocument, NamesTheMemberWhoseNumberOverflows) {
  EXPECT_EQ(problem_of(R"({"n":1,"top_p":1e400})").member, "top_p");
  EXPECT_EQ(problem_of(R"({"a":{"b":[1e400]}})").member, "a");
}

TEST(JsonDocument, RefusesAMemberThatIsGivenTwice) {
  EXPECT_EQ(problem_of(R"({"n":1,"n":2})").member, "n");
  EXPECT_EQ(problem_of(R"({"stop":[{"a":1,"a":1}]})").member, "stop");
  EXPECT_EQ(write_json(value_of(R"([{"a":1},{"a":2}])")), R"([{"a":1},{"a":2}])");
}

TEST(JsonDocument, ReadsManyMembersInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":0";

  EXPECT_EQ(value_of(text + "}").size(), 200'000u);
}

TEST(JsonDocument, BoundsTheNumberOfValues) {
  EXPECT_NE(problem_of("[1,2,3]", {.max_depth = 64, .max_values = 3}).message.find("too many values"),
            std::string::npos);
}

TEST(JsonDocument, RefusesWhatIsNotUtf8) {
  for (const std::string_view bytes : {"\xc4\xe3", "\xff", "\xc0\x80", "\xed\xa0\xbd", "\xf4\x90\x80\x80"})
    EXPECT_NE(problem_of("{\"prompt\":\"" + std::string(bytes) + "\"}").message, "(none)");
}

TEST(JsonDocument, RefusesLoneSurrogatesAndTakesPairs) {
  EXPECT_NE(problem_of(R"({"prompt":"x \ud83d"})").message, "(none)");
  EXPECT_NE(problem_of(R"({"prompt":"\ude00 y"})").message, "(none)");
  EXPECT_NE(problem_of(R"({"prompt":"\ud83d\u0041"})").message, "(none)");
  EXPECT_EQ(value_of(R"({"prompt":"\ud83d\ude00"})")["prompt"], "😀");
}

TEST(JsonDocument, RefusesWhatIsNotJson) {
  for (const std::string_view text : {"", " ", "{", "{}x", "nul", "{'a':1}", "[1,]", "NaN", "01", "\"\t\"", "// x"})
    EXPECT_NE(problem_of(text).message, "(none)") << text;
}

TEST(Body, EchoesNoTextOfTheClient) {
  const std::string_view fields[] = {"n"};
  const auto read = read_body(R"({"<script>":1e400})", {}, fields);

  const auto& error = std::get<ApiError>(read);
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "");
  EXPECT_EQ(to_json(error).find("script"), std::string::npos);
}

TEST(Body, MustBeAnObject) {
  for (const std::string_view body : {"[]", "1", "null", "\"prompt\""})
    EXPECT_EQ(std::get<ApiError>(read_body(body, {}, {})).code, "malformed") << body;
}

} // namespace
} // namespace millrace::http
