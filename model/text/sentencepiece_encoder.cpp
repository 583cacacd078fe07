#include "model/text/sentencepiece_encoder.hpp"

#include "model/text/utf8.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace {
namespace {

constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTokenType = "tokenizer.ggml.token_type";
constexpr std::string_view kSpaceMark = "\u2581";

int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  return -1;
}

} // namespace

int parse_byte_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>')
    return -1;
  const int high = hex_digit(piece[3]), low = hex_digit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

SentencePieceEncoder::SentencePieceEncoder(const GgufFile& file, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary) {
  if (!file.find(kTokenType))
    throw FormatError("the key " + std::string(kTokenType) + " is missing");
  read_scores(file);
  read_byte_tokens();
}

void SentencePieceEncoder::read_scores(const GgufFile& file) {
  const auto scores = required(file.get_floats(kScores, vocabulary_.size()), kScores);
  for (size_t i = 0; i < scores.size(); ++i)
    if (std::isnan(scores[i]))
      throw FormatError("entry " + std::to_string(i) + " of " + std::string(kScores) + " is not a number");

  std::vector<TokenId> best_first(scores.size());
  std::iota(best_first.begin(), best_first.end(), 0);
  std::ranges::sort(best_first, std::greater{}, [&](TokenId id) { return scores[id]; });
  ranks_.resize(scores.size());
  for (size_t i = 1; i < best_first.size(); ++i) {
    const TokenId id = best_first[i], before = best_first[i - 1];
    ranks_[id] = ranks_[before] + (scores[id] != scores[before]);
  }
}

void SentencePieceEncoder::read_byte_tokens() {
  byte_tokens_.fill(kNoToken);
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    if (vocabulary_.type(id) != TokenType::byte)
      continue;
    const int byte = parse_byte_piece(vocabulary_.piece(id));
    if (byte < 0)
      throw FormatError("token " + std::to_string(id) + " has the type of a byte but is not spelt <0xHH>");
    byte_tokens_[byte] = id;
  }
  if (std::ranges::find(byte_tokens_, kNoToken) != byte_tokens_.end() && vocabulary_.unknown() == kNoToken)
    throw FormatError("the vocabulary has neither a token for each byte nor tokenizer.ggml.unknown_token_id");
}

void SentencePieceEncoder::encode(std::string_view text, bool space_prefix, std::vector<TokenId>& ids) const {
  std::string marked(space_prefix ? kSpaceMark : "");
  for (const char c : text) {
    if (c == ' ')
      marked += kSpaceMark;
    else
      marked += c;
  }

  SymbolMerger merger;
  for (size_t begin = 0; begin < marked.size();) {
    const size_t size = std::max<size_t>(1, utf8_character_size(std::string_view(marked).substr(begin)));
    merger.add(vocabulary_.find({marked.data() + begin, size}), static_cast<int32_t>(size));
    begin += size;
  }
  merger.run([&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const size_t size = left.size + right.size;
    if (size > vocabulary_.longest_piece())
      return std::nullopt;
    const TokenId id = vocabulary_.find({marked.data() + left.begin, size});
    return id == kNoToken ? std::nullopt : std::optional(Merge{ranks_[id], id});
  });

  bool after_unknown = false; // a run of unknown characters is one unknown token
  merger.for_each([&](const Symbol& symbol) {
    if (symbol.id != kNoToken) {
      ids.push_back(symbol.id);
      after_unknown = false;
      return;
    }
    for (const char c : std::string_view(marked).substr(symbol.begin, symbol.size)) {
      const TokenId id = byte_tokens_[static_cast<uint8_t>(c)];
      if (id != kNoToken)
        ids.push_back(id);
      else if (!after_unknown)
        ids.push_back(vocabulary_.unknown());
      after_unknown = id == kNoToken;
    }
  });
}

std::string SentencePieceEncoder::bytes(TokenId id) const {
  const std::string_view piece = vocabulary_.piece(id);
  if (vocabulary_.type(id) == TokenType::byte)
    return {static_cast<char>(parse_byte_piece(piece))};
  std::string text;
  for (size_t begin = 0; begin < piece.size();) {
    const size_t mark = std::min(piece.find(kSpaceMark, begin), piece.size());
    text += piece.substr(begin, mark - begin);
    if (mark < piece.size())
      text += ' ';
    begin = mark + kSpaceMark.size();
  }
  return text;
}

} // namespace millrace
