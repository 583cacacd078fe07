#pragma once

#include "model/text/symbol_merger.hpp"
#include "model/text/vocabulary.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// The byte that a token of type byte is spelt as: exactly "<0xHH>", two hexadecimal digits; else -1.
int parse_byte_piece(std::string_view piece);

/// SentencePiece's BPE (tokenizer.ggml.model "llama"): spaces are written as U+2581, neighbours merge
/// wherever the vocabulary has their concatenation, the best score first; characters without a token fall
/// back to bytes, or to the unknown token.
class SentencePieceEncoder {
public:
  /// Throws FormatError if scores or token types are missing or malformed, or some text could not be encoded
  /// at all. The vocabulary must outlive this object.
  SentencePieceEncoder(const GgufFile& file, const Vocabulary& vocabulary);

  /// Appends the ids of ordinary text; space_prefix puts a space before it.
  void encode(std::string_view text, bool space_prefix, std::vector<TokenId>& ids) const;

  /// The bytes that an ordinary token stands for.
  std::string bytes(TokenId id) const;

private:
  void read_scores(const GgufFile& file);
  void read_byte_tokens();

  const Vocabulary& vocabulary_;
  std::vector<uint32_t> ranks_; // by id: 0 is the best score, equal scores have equal ranks
  std::array<TokenId, 256> byte_tokens_;
};

} // namespace millrace
