#pragma once

#include "model/text/pretokenizer.hpp"
#include "model/text/symbol_merger.hpp"
#include "model/text/vocabulary.hpp"

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace millrace {

/// Byte-level byte-pair encoding (tokenizer.ggml.model "gpt2"): words of the pre-tokenizer, bytes spelt in
/// GPT-2's alphabet, ranked merges. Any bytes can be encoded if the vocabulary has a token for each, and then
/// decode to themselves.
class BytePairEncoder {
public:
  /// Throws FormatError if the merges are missing or malformed, or the pre-tokenizer is not known. Merges
  /// whose parts or result are not in the vocabulary can never apply and are left out. The vocabulary must
  /// outlive this object.
  BytePairEncoder(const GgufFile& file, const Vocabulary& vocabulary);

  /// Appends the ids of ordinary text. A byte that has no token becomes the unknown token if there is one,
  /// else nothing.
  void encode(std::string_view text, std::vector<TokenId>& ids) const;

  /// The bytes that an ordinary token stands for.
  std::string bytes(TokenId id) const;

  const Pretokenizer& pretokenizer() const { return pretokenizer_; }

private:
  void read_merges(const GgufFile& file);
  void encode_word(std::string_view word, SymbolMerger& merger, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  Pretokenizer pretokenizer_;
  std::array<TokenId, 256> byte_tokens_;
  std::unordered_map<uint64_t, Merge> merges_; // by the ids of the two parts
};

} // namespace millrace
