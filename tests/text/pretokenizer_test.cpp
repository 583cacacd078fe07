#include "model/text/pretokenizer.hpp"

#include "model/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Pretokenizer, CutsAsGpt2Does) {
  const Pretokenizer gpt2("gpt-2");

  EXPECT_THAT(gpt2.split("I'll say IT'S 1234 times..."),
              ElementsAre("I", "'ll", " say", " IT", "'", "S", " 1234", " times", "..."));
  EXPECT_THAT(gpt2.split("a   b  "), ElementsAre("a", "  ", " b", "  "));
  EXPECT_THAT(gpt2.split("a\n\n b"), ElementsAre("a", "\n\n", " b"));
}

TEST(Pretokenizer, CutsAsLlama3Does) {
  const Pretokenizer llama3("llama-bpe");

  EXPECT_THAT(llama3.split("IT'S 1234567!\n\nx"),
              ElementsAre("IT", "'S", " ", "123", "456", "7", "!\n\n", "x"));
  EXPECT_THAT(llama3.split("  \n  a\tb"), ElementsAre("  \n", " ", " a", "\tb"));
}

TEST(Pretokenizer, CutsAsQwen2Does) {
  EXPECT_THAT(Pretokenizer("qwen2").split("x=12 34"), ElementsAre("x", "=", "1", "2", " ", "3", "4"));
}

TEST(Pretokenizer, CutsDigitsBeforeWordsForStarCoder) {
  EXPECT_THAT(Pretokenizer("starcoder").split("a  12b"), ElementsAre("a", "  ", "1", "2", "b"));
}

TEST(Pretokenizer, CutsAsDeepSeekDoes) {
  EXPECT_THAT(Pretokenizer("deepseek-llm").split("a b\n中文!12 "),
              ElementsAre("a", " b", "\n", "中文", "!", "12", " "));
  EXPECT_THAT(Pretokenizer("deepseek-llm").split("a  Ջ  ջ"),
              ElementsAre("a", " ", " Ջ", "  ջ")); // small Armenian is no letter
  EXPECT_THAT(Pretokenizer("deepseek-coder").split("a b\n中文!12 "),
              ElementsAre("a", " b", "\n", "中文", "!", "1", "2", " "));
}

TEST(Pretokenizer, MakesAWordOfEachInvalidByte) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2", "starcoder", "deepseek-llm", "deepseek-coder"})
    EXPECT_THAT(Pretokenizer(name).split("ab\xff\xc3"
                                         "cd\xe4\xb8"),
                ElementsAre("ab", "\xff", "\xc3", "cd", "\xe4", "\xb8"))
        << name;
}

TEST(Pretokenizer, MakesNoWordsOfNothing) {
  EXPECT_TRUE(Pretokenizer("gpt-2").split("").empty());
}

TEST(Pretokenizer, NamesWhatItDoesNotKnowAndWhatItDoes) {
  try {
    Pretokenizer("tekken");
    FAIL() << "accepted";
  } catch (const FormatError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("tekken"), HasSubstr("qwen2")));
  }
}

} // namespace
} // namespace millrace
