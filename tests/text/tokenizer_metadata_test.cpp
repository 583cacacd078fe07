// A model file is untrusted: what a tokenizer makes of right and wrong keys.

#include "model/text/sentencepiece_encoder.hpp"
#include "model/text/tokenizer.hpp"
#include "tests/model/gguf_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace millrace {
namespace {

using testing::ExactBytes;
using testing::GgufWriter;
using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr uint32_t kInt32 = 5, kUint8 = 0, kFloat32 = 6, kArray = 9;

/// What the tokenizer's keys hold; each test spoils one of them.
struct Keys {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens = {};
  std::vector<int32_t> types = {};
  std::vector<std::string> merges = {};
  std::vector<float> scores = {};
  std::function<void(GgufWriter&)> change = [](GgufWriter&) {};

  Tokenizer load() const {
    GgufWriter writer;
    writer.string("tokenizer.ggml.model", model).string("tokenizer.ggml.pre", pre);
    writer.key("tokenizer.ggml.tokens", kArray, GgufWriter::text_array(tokens));
    writer.key("tokenizer.ggml.token_type", kArray, GgufWriter::array(kInt32, types));
    if (!merges.empty())
      writer.key("tokenizer.ggml.merges", kArray, GgufWriter::text_array(merges));
    if (!scores.empty())
      writer.key("tokenizer.ggml.scores", kArray, GgufWriter::array(kFloat32, scores));
    change(writer);
    const ExactBytes bytes(writer.file());
    return Tokenizer(GgufFile(bytes.span())); // the bytes may go: the tokenizer owns what it needs
  }
};

Keys byte_pairs() {
  return {.tokens = {"a", "b", "c", "Ġ", "ab", "abc", "END", "<end>"},
          .types = {1, 1, 1, 1, 1, 1, 3, 3},
          .merges = {"a b", "ab c"}};
}

Keys sentence_pieces() {
  return {.model = "llama",
          .pre = "default",
          .tokens = {"<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁ab", "s>"},
          .types = {2, 3, 3, 1, 1, 1, 1, 1, 1},
          .scores = {0, 0, 0, -1, -2, -3, -4, -5, -6},
          .change = [](GgufWriter& w) { w.u32("tokenizer.ggml.unknown_token_id", 0); }};
}

std::string error_of(const Keys& keys) {
  try {
    keys.load();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "accepted";
}

std::string error_of(Keys keys, std::function<void(GgufWriter&)> change) {
  keys.change = [before = keys.change, change](GgufWriter& w) {
    before(w);
    change(w);
  };
  return error_of(keys);
}

TEST(TokenizerMetadata, ReadsAByteLevelVocabulary) {
  const Tokenizer tokenizer = byte_pairs().load();

  EXPECT_EQ(tokenizer.kind(), "gpt2/gpt-2");
  EXPECT_EQ(tokenizer.encode("abc ab", {}), (Ids{5, 3, 4}));
  EXPECT_EQ(tokenizer.bos(), -1);
  EXPECT_EQ(tokenizer.eos(), -1);
  EXPECT_FALSE(tokenizer.adds_bos());
}

TEST(TokenizerMetadata, ReadsASentencePieceVocabulary) {
  const Tokenizer tokenizer = sentence_pieces().load();

  EXPECT_EQ(tokenizer.encode("ab b", {}), (Ids{7, 6, 4}));
  EXPECT_FALSE(tokenizer.adds_bos()); // there is none to add
}

TEST(TokenizerMetadata, AddsBosForLlama3ThoughNoKeySaysSo) {
  Keys keys = byte_pairs();
  keys.change = [](GgufWriter& w) { w.u32("tokenizer.ggml.bos_token_id", 7); };
  EXPECT_EQ(keys.load().encode("a", {}), Ids{0});
  keys.pre = "llama-bpe";
  EXPECT_EQ(keys.load().encode("a", {}), (Ids{7, 0}));
  keys.change = [](GgufWriter& w) {
    w.u32("tokenizer.ggml.bos_token_id", 7).boolean("tokenizer.ggml.add_bos_token", false);
  };
  EXPECT_EQ(keys.load().encode("a", {}), Ids{0});
}

TEST(TokenizerMetadata, KeepsLlama3sWordsWholeThatNoMergeReaches) {
  Keys keys = byte_pairs();
  keys.merges = {"a b"};
  EXPECT_EQ(keys.load().encode("abc", {}), (Ids{4, 2}));
  keys.pre = "llama-bpe";
  EXPECT_EQ(keys.load().encode("abc", {}), Ids{5});
}

TEST(TokenizerMetadata, MergesTheBestScoreFirstAndTheLeftmostOfEquals) {
  Keys keys = sentence_pieces();
  keys.tokens = {"<unk>", "<s>", "</s>", "a", "b", "ab", "ba", "x", "y"};
  EXPECT_EQ(keys.load().encode("bab", {}), (Ids{0, 4, 5})); // ab scores -3, ba -4
  keys.scores = {0, 0, 0, -1, -2, -3, -3, -5, -6};
  EXPECT_EQ(keys.load().encode("bab", {}), (Ids{0, 6, 4}));
}

TEST(TokenizerMetadata, MakesOneUnknownTokenOfARunOfUnknownCharacters) {
  EXPECT_EQ(sentence_pieces().load().encode("a中文b", {}), (Ids{6, 3, 0, 4}));
}

TEST(TokenizerMetadata, LeavesOutBytesThatHaveNoToken) {
  Keys keys = byte_pairs();
  EXPECT_EQ(keys.load().encode("axb", {}), (Ids{0, 1}));
  keys.change = [](GgufWriter& w) { w.u32("tokenizer.ggml.unknown_token_id", 7); };
  EXPECT_EQ(keys.load().encode("axb", {}), (Ids{0, 7, 1}));
}

TEST(TokenizerMetadata, NeverMergesIntoAControlToken) {
  Keys whole_word = byte_pairs();
  whole_word.pre = "llama-bpe";
  whole_word.tokens[0] = "E", whole_word.tokens[1] = "N", whole_word.tokens[2] = "D";
  whole_word.tokens[4] = "EN", whole_word.merges = {"E N", "EN D"};
  EXPECT_EQ(whole_word.load().encode("END", {}), (Ids{4, 2}));
  EXPECT_EQ(whole_word.load().encode("END", {.parse_special = true}), Ids{6});

  Keys pieces = sentence_pieces();
  pieces.tokens[3] = "<";
  for (const TokenId id : pieces.load().encode("<s>", {}))
    EXPECT_NE(id, 1);
}

TEST(TokenizerMetadata, PrefersTheLeftmostAndLongestSpecialToken) {
  Keys keys = byte_pairs();
  keys.tokens = {"a", "b", "c", "Ġ", "aab", "bcccc", "aa", "<end>"};
  keys.types = {1, 1, 1, 1, 4, 4, 4, 3};
  keys.merges = {"a b"};
  const Tokenizer tokenizer = keys.load();
  EXPECT_EQ(tokenizer.encode("aaab", {}), (Ids{6, 0, 1}));
  EXPECT_EQ(tokenizer.encode("aabcccc", {}), (Ids{4, 2, 2, 2, 2}));
  EXPECT_EQ(tokenizer.encode("caabbcccc", {}), (Ids{2, 4, 5}));
  EXPECT_EQ(tokenizer.encode("aa", {}), Ids{6});
}

TEST(TokenizerMetadata, SkipsMergesOfPiecesThatAreNotThere) {
  Keys keys = byte_pairs();
  keys.merges = {"x y", "a c", "a b", "b END"};
  EXPECT_EQ(keys.load().encode("abc", {}), (Ids{4, 2}));
}

TEST(TokenizerMetadata, AcceptsEmptyPieces) {
  Keys keys = byte_pairs();
  keys.tokens[2] = "", keys.tokens[7] = "";
  const Tokenizer tokenizer = keys.load();
  EXPECT_EQ(tokenizer.encode("ab", {.parse_special = true}), Ids{4});
  EXPECT_EQ(tokenizer.bytes(2), "");
}

TEST(TokenizerMetadata, TakesOnlyTwoHexadecimalDigitsForAByte) {
  EXPECT_EQ(parse_byte_piece("<0x00>"), 0);
  EXPECT_EQ(parse_byte_piece("<0xfF>"), 255);
  for (const char* piece :
       {"<0x-1>", "<0xGG>", "<0x100>", "<0x", "", "<0x1>", "<0x 1>", "<0x+1>", "0x41", "<0x41 ", "<0X41>"})
    EXPECT_EQ(parse_byte_piece(piece), -1) << piece;

  for (const char* piece : {"<0x-1>", "<0xGG>", "<0x100>", "<0x", ""}) {
    Keys keys = sentence_pieces();
    keys.tokens[8] = piece, keys.types[8] = 6;
    EXPECT_THAT(error_of(keys), HasSubstr("token 8")) << piece;
  }
}

TEST(TokenizerMetadata, NamesTheKeyThatIsMissing) {
  for (const char* key :
       {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"})
    EXPECT_THAT(error_of(byte_pairs(), [key](GgufWriter& w) { w.drop_key(key); }), HasSubstr(key));
  for (const char* key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"})
    EXPECT_THAT(error_of(sentence_pieces(), [key](GgufWriter& w) { w.drop_key(key); }), HasSubstr(key));
}

TEST(TokenizerMetadata, NamesTheKeyOfTheWrongType) {
  const auto replaced_by = [](const char* key, uint32_t type, const std::string& value) {
    return [=](GgufWriter& w) { w.drop_key(key).key(key, type, value); };
  };
  const std::string bytes_9 = GgufWriter::array(kUint8, std::vector<uint8_t>(9));

  EXPECT_THAT(error_of(sentence_pieces(), replaced_by("tokenizer.ggml.scores", kArray, bytes_9)),
              HasSubstr("tokenizer.ggml.scores"));
  for (const char* key :
       {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.pre", "tokenizer.ggml.model"})
    EXPECT_THAT(error_of(byte_pairs(), replaced_by(key, kArray, bytes_9)), HasSubstr(key));
  const std::string floats_8 = GgufWriter::array(kFloat32, std::vector<float>(8));
  EXPECT_THAT(error_of(byte_pairs(), replaced_by("tokenizer.ggml.token_type", kArray, floats_8)),
              HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(error_of(byte_pairs(), [](GgufWriter& w) { w.string("tokenizer.ggml.bos_token_id", "1"); }),
              HasSubstr("tokenizer.ggml.bos_token_id"));
  EXPECT_THAT(error_of(byte_pairs(), [](GgufWriter& w) { w.u32("tokenizer.ggml.add_bos_token", 1); }),
              HasSubstr("tokenizer.ggml.add_bos_token"));
}

TEST(TokenizerMetadata, NamesTheArrayOfTheWrongLength) {
  Keys types = byte_pairs();
  types.types.pop_back();
  EXPECT_THAT(error_of(types), HasSubstr("tokenizer.ggml.token_type"));
  Keys scores = sentence_pieces();
  scores.scores.push_back(0);
  EXPECT_THAT(error_of(scores), HasSubstr("tokenizer.ggml.scores"));
}

TEST(TokenizerMetadata, NamesValuesOutsideTheirRange) {
  for (const char* key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.unknown_token_id",
        "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    EXPECT_THAT(error_of(byte_pairs(), [key](GgufWriter& w) { w.u32(key, 8); }), HasSubstr(key));
  for (const int32_t type : {-1, 7}) {
    Keys keys = byte_pairs();
    keys.types[3] = type;
    EXPECT_THAT(error_of(keys), HasSubstr("tokenizer.ggml.token_type"));
  }
  Keys scores = sentence_pieces();
  scores.scores[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of(scores), HasSubstr("tokenizer.ggml.scores"));
}

TEST(TokenizerMetadata, RefusesVocabulariesWithoutTokensOrWithEndlessOnes) {
  Keys none = byte_pairs();
  none.tokens.clear(), none.types.clear();
  EXPECT_THAT(error_of(none), HasSubstr("tokenizer.ggml.tokens"));
  Keys endless = byte_pairs();
  endless.tokens[0] = std::string(5000, 'a');
  EXPECT_THAT(error_of(endless), HasSubstr("token 0"));
}

TEST(TokenizerMetadata, RefusesMergesThatAreNotTwoPieces) {
  for (const char* merge : {"", "ab", "a ", " b"}) {
    Keys keys = byte_pairs();
    keys.merges[1] = merge;
    EXPECT_THAT(error_of(keys), HasSubstr("entry 1 of tokenizer.ggml.merges")) << merge;
  }
}

TEST(TokenizerMetadata, RefusesTextThatCouldNotBeEncoded) {
  EXPECT_THAT(
      error_of(sentence_pieces(), [](GgufWriter& w) { w.drop_key("tokenizer.ggml.unknown_token_id"); }),
      HasSubstr("tokenizer.ggml.unknown_token_id"));
}

TEST(TokenizerMetadata, NamesKindsThatItDoesNotKnow) {
  Keys kind = byte_pairs();
  kind.model = "gemma4";
  EXPECT_THAT(error_of(kind),
              AllOf(HasSubstr("tokenizer.ggml.model"), HasSubstr("gemma4"), HasSubstr("llama")));
  Keys pre = byte_pairs();
  pre.pre = "tekken";
  EXPECT_THAT(error_of(pre), AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("tekken"), HasSubstr("qwen2")));
}

TEST(TokenizerMetadata, HashesEverythingThatDecides) {
  const uint64_t hash = byte_pairs().load().hash();
  Keys type = byte_pairs(), merge = byte_pairs(), piece = byte_pairs(), bos = byte_pairs(),
       pre = byte_pairs();
  type.types[0] = 4;
  std::swap(merge.merges[0], merge.merges[1]);
  piece.tokens[7] = "<End>";
  bos.change = [](GgufWriter& w) { w.u32("tokenizer.ggml.bos_token_id", 7); };
  pre.pre = "qwen2";

  EXPECT_EQ(byte_pairs().load().hash(), hash);
  for (const Keys& keys : {type, merge, piece, bos, pre})
    EXPECT_NE(keys.load().hash(), hash);

  Keys score = sentence_pieces();
  score.scores[3] = -7;
  EXPECT_NE(score.load().hash(), sentence_pieces().load().hash());
}

} // namespace
} // namespace millrace
