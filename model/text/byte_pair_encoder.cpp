#include "model/text/byte_pair_encoder.hpp"

#include "model/text/byte_alphabet.hpp"

namespace millrace {
namespace {

constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";

uint64_t pair_key(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

} // namespace

BytePairEncoder::BytePairEncoder(const GgufFile& file, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), pretokenizer_(required(file.get_string(kPre), kPre)) {
  for (int byte = 0; byte < 256; ++byte)
    byte_tokens_[byte] = vocabulary.find(spell_byte(static_cast<uint8_t>(byte)));
  read_merges(file);
}

void BytePairEncoder::read_merges(const GgufFile& file) {
  const auto merges = required(file.get_strings(kMerges), kMerges);
  merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size())
      throw FormatError("entry " + std::to_string(rank) + " of " + std::string(kMerges) +
                        " is not two pieces");
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const TokenId left = vocabulary_.find(merge.substr(0, space));
    const TokenId right = vocabulary_.find(merge.substr(space + 1));
    const TokenId id = vocabulary_.find(joined);
    if (left != kNoToken && right != kNoToken && id != kNoToken)
      merges_.try_emplace(pair_key(left, right), Merge{static_cast<uint32_t>(rank), id});
  }
}

void BytePairEncoder::encode(std::string_view text, std::vector<TokenId>& ids) const {
  SymbolMerger merger;
  for (const std::string_view word : pretokenizer_.split(text))
    encode_word(word, merger, ids);
}

void BytePairEncoder::encode_word(std::string_view word, SymbolMerger& merger,
                                  std::vector<TokenId>& ids) const {
  if (pretokenizer_.keeps_whole_words() && word.size() <= vocabulary_.longest_piece()) {
    std::string spelling;
    for (const char byte : word)
      spelling += spell_byte(static_cast<uint8_t>(byte));
    if (const TokenId id = vocabulary_.find(spelling); id != kNoToken) {
      ids.push_back(id);
      return;
    }
  }

  merger.clear();
  for (const char byte : word)
    merger.add(byte_tokens_[static_cast<uint8_t>(byte)], 1);
  merger.run([this](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    if (left.id == kNoToken || right.id == kNoToken)
      return std::nullopt;
    const auto found = merges_.find(pair_key(left.id, right.id));
    return found == merges_.end() ? std::nullopt : std::optional(found->second);
  });
  merger.for_each([&](const Symbol& symbol) {
    const TokenId id = symbol.id != kNoToken ? symbol.id : vocabulary_.unknown();
    if (id != kNoToken)
      ids.push_back(id);
  });
}

std::string BytePairEncoder::bytes(TokenId id) const {
  const std::string_view piece = vocabulary_.piece(id);
  if (vocabulary_.type(id) != TokenType::user_defined)
    if (auto bytes = unspell_bytes(piece))
      return *std::move(bytes);
  return std::string(piece);
}

} // namespace millrace
