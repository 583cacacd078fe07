#pragma once

// Log-probs of tokens in the two forms of OpenAI's API.

#include "messages/stream.hpp"
#include "model/text/tokenizer.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace millrace::http {

/// A token's own text: its bytes, or for a token that stands for none (a control token) its spelling in the
/// vocabulary. Not always UTF-8. `tokenizer` may be null.
std::string token_text(TokenId id, const Bytes& bytes, const Tokenizer* tokenizer);

/// Chat: appends {"token", "logprob", "bytes", "top_logprobs"}.
void append_chat_logprob(std::string& out, const Token& token, const Tokenizer* tokenizer);

/// Completions: four arrays, one entry for each token. A token that is not UTF-8 by itself is spelled
/// "bytes:\xf0\x9f".
class CompletionLogprobs {
public:
  /// A log-prob is absent for the first token of a prompt. `top` becomes a map that has the token itself, too; of two
  /// tokens with one spelling it keeps the likelier.
  void add(TokenId id, const Bytes& bytes, std::optional<float> logprob, std::span<const TokenLogprob> top,
           int64_t text_offset, const Tokenizer* tokenizer);
  void append(const CompletionLogprobs& later);

  /// {"tokens": […], "token_logprobs": […], "top_logprobs": […], "text_offset": […]}
  void append_json(std::string& out) const;
  size_t bytes() const;

private:
  std::string tokens_, logprobs_, top_, offsets_; // elements with commas between
};

/// Characters of UTF-8 text.
int64_t count_characters(std::string_view text);

/// Where in a prompt's text its tokens begin.
class PromptOffsets {
public:
  /// `text` must outlive this.
  PromptOffsets(std::string_view text, const Tokenizer* tokenizer, bool has_space_prefix)
      : text_(text), tokenizer_(tokenizer), skip_space_(has_space_prefix) {}

  /// The complete characters before the next token, which is this.
  int64_t next(TokenId id, const Bytes& bytes);

private:
  std::string_view text_;
  const Tokenizer* tokenizer_;
  bool skip_space_; // the first piece has a space that the text has not
  size_t position_ = 0, counted_ = 0;
  int64_t characters_ = 0; // of the text before counted_
};

} // namespace millrace::http
