#include "model/text/vocabulary.hpp"

#include <algorithm>
#include <array>

namespace millrace {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTokenType = "tokenizer.ggml.token_type";

// The longest pieces of published vocabularies are runs of 256 spaces. The limit bounds what a hostile file
// can make the longest-match search cost.
constexpr size_t kMaxPieceBytes = 4096;
constexpr size_t kMaxTokens = 1 << 24;

// How chat models end a turn. Many files declare only one eos, and not always the one that their template
// uses.
constexpr std::array<std::string_view, 10> kTurnEnds = {
    "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",      "<|end|>",    "<end_of_turn>",
    "<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>", "<|return|>", "<｜end▁of▁sentence｜>",
};

} // namespace

Vocabulary::Vocabulary(const GgufFile& file) {
  const auto tokens = required(file.get_strings(kTokens), kTokens);
  if (tokens.empty() || tokens.size() > kMaxTokens)
    throw FormatError(std::string(kTokens) + " has " + std::to_string(tokens.size()) + " tokens; 1 to " +
                      std::to_string(kMaxTokens) + " are supported");

  size_t bytes = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].size() > kMaxPieceBytes)
      throw FormatError("token " + std::to_string(i) + " of " + std::string(kTokens) + " has " +
                        std::to_string(tokens[i].size()) + " bytes; the limit is " +
                        std::to_string(kMaxPieceBytes));
    bytes += tokens[i].size();
    longest_piece_ = std::max(longest_piece_, tokens[i].size());
  }
  text_.reserve(bytes);
  pieces_.reserve(tokens.size());
  for (const std::string_view token : tokens) {
    text_.insert(text_.end(), token.begin(), token.end());
    pieces_.emplace_back(text_.data() + text_.size() - token.size(), token.size());
  }

  types_.assign(tokens.size(), TokenType::normal);
  if (const auto types = file.get_ints(kTokenType, tokens.size())) {
    for (size_t i = 0; i < types->size(); ++i) {
      const int64_t type = (*types)[i];
      if (type < 0 || type > static_cast<int64_t>(TokenType::byte))
        throw FormatError("entry " + std::to_string(i) + " of " + std::string(kTokenType) + " is " +
                          std::to_string(type) + "; 0 to 6 are defined");
      types_[i] = static_cast<TokenType>(type);
    }
  }

  ordinary_.reserve(tokens.size());
  for (TokenId id = 0; id < size(); ++id)
    if (!is_control(id) && type(id) != TokenType::byte && !piece(id).empty())
      ordinary_.emplace(piece(id), id);

  bos_ = read_id(file, "tokenizer.ggml.bos_token_id");
  eos_ = read_id(file, "tokenizer.ggml.eos_token_id");
  unknown_ = read_id(file, "tokenizer.ggml.unknown_token_id");
  mark_ends_of_generation(file);
}

bool Vocabulary::is_control(TokenId id) const {
  return type(id) == TokenType::control || type(id) == TokenType::unknown;
}

TokenId Vocabulary::find(std::string_view piece) const {
  const auto found = ordinary_.find(piece);
  return found == ordinary_.end() ? kNoToken : found->second;
}

TokenId Vocabulary::read_id(const GgufFile& file, std::string_view key) const {
  return static_cast<TokenId>(file.get_int(key, 0, size() - 1).value_or(kNoToken));
}

void Vocabulary::mark_ends_of_generation(const GgufFile& file) {
  ends_generation_.assign(pieces_.size(), false);
  const TokenId declared[] = {eos_, read_id(file, "tokenizer.ggml.eot_token_id"),
                              read_id(file, "tokenizer.ggml.eom_token_id")};
  for (const TokenId id : declared)
    if (id != kNoToken)
      ends_generation_[id] = true;
  for (TokenId id = 0; id < size(); ++id)
    if (type(id) == TokenType::control && std::ranges::find(kTurnEnds, piece(id)) != kTurnEnds.end())
      ends_generation_[id] = true;
}

} // namespace millrace
