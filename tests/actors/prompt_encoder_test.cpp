#include "actors/prompt_encoder.hpp"

#include "actor_test.hpp"

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

} // namespace
} // namespace millrace
