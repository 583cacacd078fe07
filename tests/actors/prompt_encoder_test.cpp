#include "actors/prompt_encoder.hpp"

#include "tests/actors/actor_test.hpp"
#include "tests/model/gguf_writer.hpp"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using testing::tiny_tokenizer;

constexpr int32_t kContext = 64;

PromptEncoder encoder_of(std::shared_ptr<const Tokenizer> tokenizer, ChatSupport chat = {}) {
  return PromptEncoder(std::move(tokenizer), std::move(chat), kContext);
}

std::variant<Prompt, Rejected> encode(const Generate& request, std::shared_ptr<const Tokenizer> tokenizer) {
  return encoder_of(tokenizer).encode(request);
}

TEST(EncodePrompt, TakesBosAloneForAnEmptyPromptOfTextOrIds) {
  const auto tokenizer = tiny_tokenizer();
  Generate text, ids;
  text.prompt = "";
  ids.prompt_ids.emplace();

  for (const Generate& request : {text, ids}) {
    const auto encoded = encode(request, tokenizer);
    ASSERT_TRUE(std::holds_alternative<Prompt>(encoded));
    EXPECT_EQ(std::get<Prompt>(encoded).token_ids, std::vector{tokenizer->bos()});
  }
}

TEST(EncodePrompt, RefusesAnEmptyPromptThatMayNotBeginWithBos) {
  Generate request;
  request.prompt_ids.emplace();
  request.add_bos = false;

  const auto encoded = encode(request, tiny_tokenizer());

  ASSERT_TRUE(std::holds_alternative<Rejected>(encoded));
  EXPECT_EQ(std::get<Rejected>(encoded).field, "prompt_ids");
}

TEST(EncodePrompt, RefusesTextThatCanNotFitWithoutEncodingIt) {
  const auto tokenizer = tiny_tokenizer();
  Generate request;
  request.prompt = std::string(encoder_of(tokenizer).longest_token() * kContext, 'a');

  const auto encoded = encode(request, tokenizer);

  ASSERT_TRUE(std::holds_alternative<Rejected>(encoded));
  EXPECT_EQ(std::get<Rejected>(encoded).error, "prompt_too_long");
  EXPECT_NE(std::get<Rejected>(encoded).message.find("at least 64 tokens"), std::string::npos);
}

TEST(EncodePrompt, CountsTheTokensOfTextThatMightFit) {
  const auto tokenizer = tiny_tokenizer();
  Generate request;
  request.prompt = std::string(kContext, '\x01'); // a token for each byte

  const auto encoded = encode(request, tokenizer);

  ASSERT_TRUE(std::holds_alternative<Rejected>(encoded));
  EXPECT_EQ(std::get<Rejected>(encoded).message.find("at least"), std::string::npos);
}

// ---- conversations ----

Generate conversation() {
  Generate request;
  request.messages.emplace();
  for (const char* role : {"user", "assistant", "user"})
    request.messages->push_back(
        {.role = role, .content = "Hello", .name = {}, .tool_call_id = {}, .tool_calls = {}});
  request.template_arguments = "{}";
  return request;
}

ChatSupport plain_chat() {
  return {std::make_shared<const ChatTemplate>(ChatTemplate::plain(), ChatTemplateOptions{}), {}};
}

TEST(EncodePrompt, RendersMessagesWithTheTemplateAndDropsThem) {
  const auto tokenizer = tiny_tokenizer();
  const ChatSupport chat = plain_chat();

  const auto encoded = encoder_of(tokenizer, chat).encode(conversation());

  ASSERT_TRUE(std::holds_alternative<Prompt>(encoded));
  const Prompt& prompt = std::get<Prompt>(encoded);
  EXPECT_EQ(tokenizer->decode(prompt.token_ids),
            "user: Hello\n\nassistant: Hello\n\nuser: Hello\n\nassistant:");
  EXPECT_EQ(prompt.token_ids.front(), tokenizer->bos());
  EXPECT_FALSE(prompt.generate.messages || prompt.generate.template_arguments);
}

// What a restart renders again must not depend on its day.
TEST(EncodePrompt, RendersTheTimeOfTheRequest) {
  const auto tokenizer = tiny_tokenizer();
  const ChatSupport chat{
      std::make_shared<const ChatTemplate>("{{ strftime_now('%Y') }}", ChatTemplateOptions{}), {}};
  Generate request = conversation();
  request.time = 86'400 * 400;

  const auto encoded = encoder_of(tokenizer, chat).encode(request);

  ASSERT_TRUE(std::holds_alternative<Prompt>(encoded));
  EXPECT_EQ(tokenizer->decode(std::get<Prompt>(encoded).token_ids), "1971");
}

TEST(EncodePrompt, BeginsTheAnswersTurnUnlessToldNotTo) {
  const auto tokenizer = tiny_tokenizer();
  Generate request = conversation();
  request.add_generation_prompt = false;

  const auto encoded = encoder_of(tokenizer, plain_chat()).encode(request);

  ASSERT_TRUE(std::holds_alternative<Prompt>(encoded));
  EXPECT_EQ(tokenizer->decode(std::get<Prompt>(encoded).token_ids),
            "user: Hello\n\nassistant: Hello\n\nuser: Hello\n\n");
}

TEST(EncodePrompt, RefusesMessagesWithTheReasonThatItWasGiven) {
  const ChatSupport broken{nullptr, "line 3: no such filter"};

  const auto encoded = encoder_of(tiny_tokenizer(), broken).encode(conversation());

  ASSERT_TRUE(std::holds_alternative<Rejected>(encoded));
  EXPECT_EQ(std::get<Rejected>(encoded).error, "unsupported");
  EXPECT_EQ(std::get<Rejected>(encoded).field, "messages");
  EXPECT_EQ(std::get<Rejected>(encoded).message, "line 3: no such filter");
}

TEST(EncodePrompt, RefusesMessagesThatCanNotFit) {
  const auto tokenizer = tiny_tokenizer();
  Generate request = conversation();
  request.messages->back().content = std::string(encoder_of(tokenizer).longest_token() * kContext, 'a');

  const auto encoded = encoder_of(tokenizer, plain_chat()).encode(request);

  ASSERT_TRUE(std::holds_alternative<Rejected>(encoded));
  EXPECT_EQ(std::get<Rejected>(encoded).error, "prompt_too_long");
  EXPECT_EQ(std::get<Rejected>(encoded).field, "messages");
}

TEST(EncodePrompt, TellsWhatTheTemplateSaysAgainstAConversation) {
  ChatSupport chat;
  chat.chat_template = std::make_shared<const ChatTemplate>("{{ raise_exception('roles must alternate') }}",
                                                            ChatTemplateOptions{});

  const auto encoded = encoder_of(tiny_tokenizer(), chat).encode(conversation());

  ASSERT_TRUE(std::holds_alternative<Rejected>(encoded));
  EXPECT_EQ(std::get<Rejected>(encoded).error, "invalid_field");
  EXPECT_EQ(std::get<Rejected>(encoded).field, "messages");
  EXPECT_NE(std::get<Rejected>(encoded).message.find("roles must alternate"), std::string::npos);
}

TEST(ChatSupport, AModelWithoutATemplateGetsThePlainOne) {
  const GgufFile file(MILLRACE_TEST_DATA "/vocab/tiny/spm-llama.gguf");
  ASSERT_FALSE(file.find("tokenizer.chat_template"));

  const ChatSupport chat = read_chat_support(file, Tokenizer(file));

  ASSERT_TRUE(chat.chat_template);
  EXPECT_EQ(chat.chat_template->source(), ChatTemplate::plain());
}

TEST(ChatSupport, ATemplateThatCanNotBeReadRefusesWithTheReason) {
  testing::GgufWriter cut, mistyped;
  cut.string("tokenizer.chat_template", "{% for %}");
  mistyped.u32("tokenizer.chat_template", 7);

  for (const testing::GgufWriter& writer : {cut, mistyped}) {
    const testing::ExactBytes bytes(writer.file());
    const ChatSupport chat = read_chat_support(GgufFile(bytes.span()), *tiny_tokenizer());

    EXPECT_FALSE(chat.chat_template);
    EXPECT_NE(chat.refusal.find("chat"), std::string::npos) << chat.refusal;
  }
}

} // namespace
} // namespace millrace
