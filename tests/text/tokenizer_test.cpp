#include "tests/text/vocab_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <stdexcept>

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;
using testing::find_vocab_file;
using testing::golden_tokenizer;
using testing::load_tokenizer;

const std::vector<std::string> kGoldenVocabs = {
    "ggml-vocab-gpt-2", "ggml-vocab-qwen2", "ggml-vocab-phi-3", "mistral-v1-vocab-only", "tiny/bpe-gpt2",
    "tiny/bpe-llama3",  "tiny/bpe-qwen2",   "tiny/spm-llama",   "tiny/spm-gemma"};

TokenId find_piece(const Tokenizer& tokenizer, std::string_view piece) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.piece(id) == piece)
      return id;
  throw std::runtime_error("no piece " + std::string(piece));
}

std::string repeated(std::string_view unit, int times) {
  std::string text;
  for (int i = 0; i < times; ++i)
    text += unit;
  return text;
}

// Texts on which tokenizers have gone wrong: digits, contractions, blanks of all kinds, scripts, marks,
// invalid bytes.
const std::vector<std::string> kNastyTexts = {"",
                                              " ",
                                              "  ",
                                              " ...",
                                              " n't",
                                              "I'M SURE YOU'LL say it's",
                                              "12345678901",
                                              "1,234,567.89",
                                              "½",
                                              "²³",
                                              "x\u00a0y",
                                              "\u3000x",
                                              "a\r\n\r\n  b\t\n",
                                              "trailing   ",
                                              "   leading",
                                              "\n\n\n \n",
                                              "\t\t",
                                              "中文mixed日本語",
                                              "한국어 테스트",
                                              "naïve café",
                                              "e\u0301",
                                              "👨‍👩‍👧‍👦 🇩🇪",
                                              "\u200b\u180e\u0085",
                                              std::string("\0nul\0", 5),
                                              "\xff\xfe",
                                              "\xc3",
                                              "ok\xe4\xb8",
                                              "\xed\xa0\x80",
                                              "\xf4\x90\x80\x80",
                                              "<|im_start|>user\nhi<|im_end|>",
                                              "<s>[INST] hi [/INST]</s>",
                                              "<0x0A>",
                                              "'''",
                                              "!!!???…",
                                              "don\u2019t"};

TEST(Tokenizer, AddsBosWhereTheFileOrTheFamilyWantsIt) {
  EXPECT_EQ(golden_tokenizer("mistral-v1-vocab-only").encode("", {}), Ids{1});
  EXPECT_EQ(golden_tokenizer("ggml-vocab-phi-3").encode("", {}), Ids{1});
  EXPECT_EQ(golden_tokenizer("tiny/bpe-llama3").encode("", {}), Ids{507});
  EXPECT_EQ(golden_tokenizer("ggml-vocab-gpt-2").encode("", {}), Ids{});
  EXPECT_EQ(golden_tokenizer("ggml-vocab-qwen2").encode("", {}), Ids{});
  EXPECT_EQ(golden_tokenizer("mistral-v1-vocab-only").encode("", {.add_bos = false}), Ids{});
}

TEST(Tokenizer, TellsWhatItIs) {
  const Tokenizer& qwen = golden_tokenizer("ggml-vocab-qwen2");
  EXPECT_EQ(qwen.kind(), "gpt2/qwen2");
  EXPECT_EQ(qwen.vocab_size(), 151936);
  EXPECT_EQ(qwen.eos(), 151643);
  EXPECT_FALSE(qwen.adds_bos());
  EXPECT_FALSE(qwen.adds_space_prefix());

  const Tokenizer& mistral = golden_tokenizer("mistral-v1-vocab-only");
  EXPECT_EQ(mistral.kind(), "llama/default");
  EXPECT_EQ(mistral.bos(), 1);
  EXPECT_EQ(mistral.eos(), 2);
  EXPECT_TRUE(mistral.adds_bos());
  EXPECT_TRUE(mistral.adds_space_prefix());
}

TEST(Tokenizer, GivesBackAnyBytesInByteLevelVocabularies) {
  for (const auto& name :
       {"ggml-vocab-gpt-2", "ggml-vocab-qwen2", "tiny/bpe-gpt2", "tiny/bpe-llama3", "tiny/bpe-qwen2"})
    for (const std::string& text : kNastyTexts) {
      const Tokenizer& tokenizer = golden_tokenizer(name);
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, {})), text) << name;
    }
}

TEST(Tokenizer, GivesBackAnyBytesThroughByteFallback) {
  for (const auto& name : {"ggml-vocab-phi-3", "mistral-v1-vocab-only", "tiny/spm-llama", "tiny/spm-gemma"})
    for (const std::string& text : kNastyTexts) {
      const Tokenizer& tokenizer = golden_tokenizer(name);
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, {})), text) << name;
    }
}

TEST(Tokenizer, DropsOnlyTheSpaceThatItPutBeforeTheText) {
  const Tokenizer& tokenizer = golden_tokenizer("mistral-v1-vocab-only");
  const Ids ids = tokenizer.encode("the quick  brown fox", {});

  std::string joined;
  for (const TokenId id : ids)
    joined += tokenizer.bytes(id);
  EXPECT_EQ(joined, " the quick  brown fox");
  EXPECT_EQ(tokenizer.decode(ids), "the quick  brown fox");
  EXPECT_EQ(tokenizer.decode(ids, false), " the quick  brown fox");

  const Ids continuation(ids.begin() + 2, ids.end());
  EXPECT_EQ(tokenizer.decode(continuation, false), " quick  brown fox");
}

TEST(Tokenizer, PutsASpaceAfterEachSpecialToken) {
  const Tokenizer& tokenizer = golden_tokenizer("mistral-v1-vocab-only");

  const Ids ids = tokenizer.encode("<s>hi</s>hi", {.add_bos = false, .parse_special = true});

  const TokenId hi = find_piece(tokenizer, "▁hi");
  EXPECT_EQ(ids, (Ids{1, hi, 2, hi}));
}

TEST(Tokenizer, NeverMakesControlTokensOfUserText) {
  std::vector<std::filesystem::path> files;
  for (const std::string& name : kGoldenVocabs)
    files.push_back(MILLRACE_TEST_DATA "/vocab/" + name + ".gguf");
  for (const char* name :
       {"ggml-vocab-llama-bpe.gguf", "gemma3-vocab-only.gguf", "ggml-vocab-starcoder.gguf"})
    if (const auto path = find_vocab_file(name))
      files.push_back(*path);

  for (const auto& file : files) {
    const Tokenizer tokenizer = load_tokenizer(file);
    for (TokenId control = 0; control < tokenizer.vocab_size(); ++control) {
      if (!tokenizer.is_control(control))
        continue;
      const std::string piece(tokenizer.piece(control));
      for (const std::string& text : {piece, "x" + piece + "y", " " + piece + "\n" + piece})
        for (const TokenId id : tokenizer.encode(text, {.add_bos = false}))
          ASSERT_FALSE(tokenizer.is_control(id)) << file << " " << piece;
      ASSERT_EQ(tokenizer.encode(piece, {.add_bos = false, .parse_special = true}), Ids{control})
          << file << " " << piece;
      ASSERT_EQ(tokenizer.bytes(control), "");
    }
  }
}

TEST(Tokenizer, FindsUserDefinedTokensInAnyText) {
  const Tokenizer& gemma = golden_tokenizer("tiny/spm-gemma");
  EXPECT_EQ(gemma.encode("\n\n\n", {.add_bos = false}), (Ids{7, 6}));
  EXPECT_EQ(gemma.encode("<start_of_turn>", {.add_bos = false}), Ids{4});
  EXPECT_EQ(golden_tokenizer("ggml-vocab-phi-3").encode("</s>", {.add_bos = false}), Ids{2});
}

TEST(Tokenizer, KnowsWhichTokensEndATurn) {
  const auto ends = [](const std::string& name) {
    const Tokenizer& tokenizer = golden_tokenizer(name);
    Ids ids;
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.is_end_of_generation(id))
        ids.push_back(id);
    return ids;
  };
  EXPECT_EQ(ends("ggml-vocab-gpt-2"), Ids{50256});
  EXPECT_EQ(ends("ggml-vocab-qwen2"), (Ids{151643, 151645}));
  EXPECT_EQ(ends("ggml-vocab-phi-3"), (Ids{32000, 32007}));
  EXPECT_EQ(ends("mistral-v1-vocab-only"), Ids{2});
  EXPECT_EQ(ends("tiny/bpe-llama3"), (Ids{508, 511}));
  EXPECT_EQ(ends("tiny/spm-gemma"), Ids{1}); // its <end_of_turn> is user-defined: anybody's text may hold it
}

TEST(Tokenizer, IsSilentAboutIdsOutsideTheVocabulary) {
  const Tokenizer& tokenizer = golden_tokenizer("tiny/bpe-gpt2");
  for (const TokenId id : {-1, 512, 1 << 30, -(1 << 30)}) {
    EXPECT_EQ(tokenizer.bytes(id), "");
    EXPECT_EQ(tokenizer.piece(id), "");
    EXPECT_FALSE(tokenizer.is_control(id));
    EXPECT_FALSE(tokenizer.is_end_of_generation(id));
    EXPECT_EQ(tokenizer.decode(Ids{id}), "");
  }
}

TEST(Tokenizer, ShowsPiecesAsSpeltAndBytesAsMeant) {
  const Tokenizer& gpt2 = golden_tokenizer("ggml-vocab-gpt-2");
  const TokenId the = find_piece(gpt2, "Ġthe");
  EXPECT_EQ(gpt2.bytes(the), " the");

  const Tokenizer& mistral = golden_tokenizer("mistral-v1-vocab-only");
  EXPECT_EQ(mistral.bytes(find_piece(mistral, "▁the")), " the");
  EXPECT_EQ(mistral.bytes(find_piece(mistral, "<0x0A>")), "\n");
  EXPECT_EQ(mistral.bytes(find_piece(mistral, "<0xFF>")), "\xff");
  EXPECT_EQ(mistral.bytes(find_piece(mistral, "<unk>")), "");
}

TEST(Tokenizer, RefusesTextBeyondItsPositions) {
  const Tokenizer& tokenizer = golden_tokenizer("tiny/bpe-gpt2");
  const std::string_view claims_to_be_long("x", size_t{1} << 31);

  EXPECT_THROW(tokenizer.encode(claims_to_be_long, {}), std::length_error);
}

TEST(Tokenizer, HasAHashOfItsOwn) {
  std::vector<uint64_t> hashes;
  for (const std::string& name : kGoldenVocabs) {
    hashes.push_back(golden_tokenizer(name).hash());
    EXPECT_EQ(load_tokenizer(MILLRACE_TEST_DATA "/vocab/" + name + ".gguf").hash(), hashes.back());
  }
  std::ranges::sort(hashes);
  EXPECT_EQ(std::ranges::adjacent_find(hashes), hashes.end());
}

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Tokenizer, TakesLongRunsInLinearTime) {
  const std::vector<std::string> texts = {repeated("a", 100'000),  repeated("_", 100'000),
                                          repeated(" ", 100'000),  repeated("ab", 100'000),
                                          repeated(" \n", 50'000), repeated("\xff", 100'000),
                                          repeated("1", 100'000),  repeated(" ", 99'999) + "x"};
  std::vector<std::filesystem::path> files;
  for (const std::string& name : kGoldenVocabs)
    files.push_back(MILLRACE_TEST_DATA "/vocab/" + name + ".gguf");
  for (const char* name :
       {"ggml-vocab-llama-bpe.gguf", "ggml-vocab-deepseek-llm.gguf", "ggml-vocab-deepseek-coder.gguf"})
    if (const auto path = find_vocab_file(name))
      files.push_back(*path);

  for (const auto& file : files) {
    const Tokenizer tokenizer = load_tokenizer(file);
    for (const std::string& text : texts) {
      const std::clock_t begin = std::clock(); // of this process alone: neighbours don't count
      tokenizer.encode(text, {});
      const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
      EXPECT_LT(seconds, 0.2) << file << " " << ::testing::PrintToString(text.substr(0, 4));
    }
  }
}
#endif

} // namespace
} // namespace millrace
