// Ids of reference tokenizers, text by text.

#include "model/model.hpp"
#include "tests/text/vocab_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;
using testing::find_vocab_file;
using testing::load_tokenizer;
using testing::read_file;
using testing::read_json;

struct Vector {
  std::string text;
  Ids ids;
};

std::vector<Vector> read_inp_and_out(const std::filesystem::path& gguf) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string texts = read_file(gguf.string() + ".inp");
  std::istringstream lines(read_file(gguf.string() + ".out"));
  std::vector<Vector> vectors;
  size_t begin = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t end = texts.find(kSeparator, begin);
    Ids ids;
    std::istringstream numbers(line);
    for (TokenId id; numbers >> id;)
      ids.push_back(id);
    vectors.push_back({texts.substr(begin, end - begin), ids});
    begin = end + kSeparator.size();
  }
  return vectors;
}

struct VocabCase {
  const char* name;
  bool has_inp_and_out;
};

class VocabVectors : public ::testing::TestWithParam<VocabCase> {};

TEST_P(VocabVectors, GivesTheReferenceIds) {
  const auto path = find_vocab_file(std::string(GetParam().name) + ".gguf");
  if (!path)
    GTEST_SKIP() << "the vocabulary's licence keeps it out of the tree, and ../shared/data/vocab is absent";
  const Tokenizer tokenizer = load_tokenizer(*path);

  if (GetParam().has_inp_and_out) {
    const auto vectors = read_inp_and_out(*path);
    EXPECT_EQ(vectors.size(), 46u);
    for (const auto& [text, ids] : vectors)
      EXPECT_EQ(tokenizer.encode(text, {.add_bos = false}), ids) << ::testing::PrintToString(text);
  }

  const auto extra = read_json(std::filesystem::path(*path).replace_extension(".extra.json"));
  for (const auto& c : extra.at("cases")) {
    const std::string text = c.at("text");
    const Ids ids = c.at("ids");
    EXPECT_EQ(tokenizer.encode(text, {.add_bos = false}), ids) << ::testing::PrintToString(text);
    if (c.contains("ids_parse_special")) {
      EXPECT_EQ(tokenizer.encode(text, {.add_bos = false, .parse_special = true}),
                c["ids_parse_special"].get<Ids>())
          << ::testing::PrintToString(text);
    }
  }
  // Where references differ, llama.cpp is followed: its files are what we read.
  for (const auto& c : extra.at("disagreements")) {
    const std::string text = c.at("text");
    EXPECT_EQ(tokenizer.encode(text, {.add_bos = false}), c.at("llama_cpp").get<Ids>())
        << ::testing::PrintToString(text);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, VocabVectors,
    ::testing::Values(VocabCase{"ggml-vocab-gpt-2", true}, VocabCase{"ggml-vocab-qwen2", true},
                      VocabCase{"ggml-vocab-phi-3", true}, VocabCase{"mistral-v1-vocab-only", false},
                      VocabCase{"ggml-vocab-llama-bpe", true}, VocabCase{"ggml-vocab-llama-spm", true},
                      VocabCase{"ggml-vocab-deepseek-llm", true},
                      VocabCase{"ggml-vocab-deepseek-coder", true}, VocabCase{"ggml-vocab-starcoder", true},
                      VocabCase{"gemma3-vocab-only", false}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::ranges::replace(name, '-', '_');
      return name;
    });

class TinyVectors : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyVectors, EncodesAndDecodesLikeTheReference) {
  const Tokenizer& tokenizer = testing::golden_tokenizer("tiny/" + GetParam());
  const auto file = read_json(MILLRACE_TEST_DATA "/vocab/tiny/" + GetParam() + ".json");
  const bool parses_special = GetParam().starts_with("bpe"); // as the references do

  for (const auto& c : file.at("cases")) {
    const std::string text = c.at("text"), decoded = c.at("decoded");
    const Ids ids = c.at("ids");
    ASSERT_EQ(tokenizer.encode(text, {.add_bos = false, .parse_special = parses_special}), ids)
        << ::testing::PrintToString(text);
    // A reference prints control tokens where we print nothing.
    if (std::ranges::none_of(ids, [&](TokenId id) { return tokenizer.is_control(id); })) {
      EXPECT_EQ(tokenizer.decode(ids), decoded);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TinyVectors,
                         ::testing::Values("bpe-gpt2", "bpe-llama3", "bpe-qwen2", "spm-llama", "spm-gemma"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(BuiltInModel, EncodesItsGoldenPrompts) {
  const auto model = Model::built_in();
  const Tokenizer tokenizer(model->file());
  const auto golden = read_json(MILLRACE_TEST_DATA "/tales.json");

  for (const auto& c : golden.at("files").at("tales-q8_0.gguf")) {
    const std::string prompt = c.at("prompt"), text = c.at("text");
    EXPECT_EQ(tokenizer.encode(prompt, {}), c.at("ids").get<Ids>()) << prompt;
    EXPECT_EQ(tokenizer.decode(c.at("greedy").get<Ids>()), text);
  }
}

} // namespace
} // namespace millrace
