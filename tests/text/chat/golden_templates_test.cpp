#include "tests/text/chat/chat_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace millrace {
namespace {

using nlohmann::ordered_json;

const std::filesystem::path kFolder = MILLRACE_TEST_DATA "/chat_templates";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == ".jinja")
      names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

/// What raise_exception said, without the input's texts; nullopt for errors that are Python's own words.
std::optional<std::string> raised(const std::string& error) {
  const std::string kind = "TemplateError: ";
  if (!error.starts_with(kind))
    return std::nullopt;
  std::string message = error.substr(kind.size());
  if (const size_t input = message.find("narrator <secret>"); input != std::string::npos)
    message.replace(input, std::string("narrator <secret>").size(), "…");
  return message;
}

class GoldenTemplates : public ::testing::TestWithParam<std::string> {
protected:
  /// Calls f(conversation, expected) for each.
  template <class F> void for_each_conversation(F f) const {
    const ordered_json conversations = ordered_json::parse(read_file(kFolder / "conversations.json"));
    const ordered_json expected = ordered_json::parse(read_file(kFolder / "expected.json"));
    for (ordered_json conversation : conversations) {
      const std::string name = conversation["name"];
      SCOPED_TRACE(name);
      conversation["template"] = read_file(kFolder / (GetParam() + ".jinja"));
      f(conversation, expected[GetParam()][name]);
    }
  }
};

TEST_P(GoldenTemplates, RenderAsWithJinja2) {
  for_each_conversation([](const ordered_json& conversation, const ordered_json& expected) {
    const ordered_json result = testing::rendered_json(conversation);

    EXPECT_EQ(result.value("text", ""), expected.value("text", "")) << result.value("error", "");
    EXPECT_EQ(result.contains("error"), expected.contains("error"));
    if (const auto message = raised(expected.value("error", ""))) {
      EXPECT_EQ(result.value("error", ""), *message);
    }
  });
}

// Each letter of the input is written in another alphabet, so that its bytes can be told from the template's.
TEST_P(GoldenTemplates, TrustNoByteOfTheInput) {
  const auto disguised = [](const std::string& text) {
    std::string result;
    for (const char c : text)
      result += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? "\u0416" : std::string(1, c);
    return result;
  };
  for_each_conversation([&](ordered_json conversation, const ordered_json&) {
    for (ordered_json& message : conversation["messages"]) {
      message["content"] = disguised(message["content"]);
      for (ordered_json& call :
           message.contains("tool_calls") ? message["tool_calls"] : ordered_json::array())
        call["function"]["name"] = disguised(call["function"]["name"]);
    }
    for (ordered_json& tool : conversation.contains("tools") ? conversation["tools"] : ordered_json::array())
      tool["function"]["description"] = disguised(tool["function"]["description"]);
    const ordered_json result = testing::rendered_json(conversation);
    if (result.contains("error"))
      return;

    const std::string text = result["text"];
    for (const ordered_json& range : result["trusted"])
      EXPECT_EQ(text.substr(range[0], range[1].get<size_t>() - range[0].get<size_t>()).find("\u0416"),
                std::string::npos)
          << text;
  });
}

TEST_P(GoldenTemplates, TrustTheirOwnControlTokens) {
  for_each_conversation([](const ordered_json& conversation, const ordered_json&) {
    if (conversation["messages"].size() != 1 || conversation.contains("tools"))
      return;
    const ordered_json result = testing::rendered_json(conversation);
    const std::string text = result.value("text", "");

    for (size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 1)) {
      const auto covers = [&](const ordered_json& range) { return range[0] <= at && at + 2 <= range[1]; };
      EXPECT_TRUE(std::ranges::any_of(result["trusted"], covers)) << text.substr(at, 20);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTemplates, ::testing::ValuesIn(template_names()),
                         [](const auto& info) { return info.param; });

} // namespace
} // namespace millrace
