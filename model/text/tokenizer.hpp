#pragma once

// Text to token ids and back. Byte-level BPE (GPT-2's alphabet, the family's pre-tokenizer) and
// SentencePiece-style BPE with byte fallback, read from a GGUF file's tokenizer.* keys.

#include "model/gguf.hpp"
#include "model/text/chat/chat_template.hpp"
#include "model/text/detokenizer.hpp"
#include "model/text/stop_matcher.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_bos = true;        // the model's BOS first, if it declares one
  bool parse_special = false; // text of control tokens becomes these tokens; else it is ordinary text
};

/// Immutable and thread-safe.
class Tokenizer {
public:
  /// Throws FormatError naming the key that is missing, of the wrong type or size, or unsupported.
  explicit Tokenizer(const GgufFile& file);
  ~Tokenizer();

  /// text is UTF-8 (invalid bytes are encoded byte by byte, never refused). Time is about linear in its
  /// length, which must be below 2^29 bytes (else std::length_error). User-defined tokens are found in any
  /// text.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const;
  /// Likewise, with control tokens found only where all of their text is trusted; user-defined ones in any
  /// text, as above. BOS stands at the beginning exactly once, if the model wants one: the prompt's own
  /// count. The rest is what the whole text with parse_special gives: words and merges cross the borders of
  /// what is trusted.
  std::vector<TokenId> encode(const RenderedPrompt& prompt) const;

  /// The bytes that a token stands for; empty for control and unknown tokens and for ids that are not in the
  /// vocabulary (the logits may be wider). SentencePiece's space mark is a space here.
  std::string_view bytes(TokenId id) const;
  /// Joins the bytes. skip_space_prefix drops the space that encode put before the first piece
  /// (SentencePiece).
  std::string decode(std::span<const TokenId> ids, bool skip_space_prefix = true) const;
  /// As the vocabulary spells it, for people; empty where bytes() is for want of a token.
  std::string_view piece(TokenId id) const;

  int32_t vocab_size() const;
  TokenId bos() const; // -1: none
  TokenId eos() const; // -1: none
  bool adds_bos() const;
  bool adds_space_prefix() const;
  bool is_control(TokenId id) const; // control or unknown: stands for no text
  /// The declared eos, eot and eom tokens, and well-known control tokens that end a turn, such as <|im_end|>.
  bool is_end_of_generation(TokenId id) const;
  std::string_view kind() const; // "gpt2/llama-bpe", "llama/default"
  uint64_t hash() const;         // xxHash3 of everything that decides encode and decode

private:
  struct State;
  std::unique_ptr<const State> state_;
};

} // namespace millrace
