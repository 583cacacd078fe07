#pragma once

#include "model/gguf.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace millrace {

using TokenId = int32_t;
constexpr TokenId kNoToken = -1;

/// What a token is for; the values of tokenizer.ggml.token_type.
enum class TokenType : uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

/// The tokens of a model file and their roles. Owns its texts: the file may be closed.
class Vocabulary {
public:
  /// Throws FormatError naming the key that is missing, or of the wrong type, size or range.
  explicit Vocabulary(const GgufFile& file);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(pieces_.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  /// As the file spells it.
  std::string_view piece(TokenId id) const { return pieces_[id]; }
  TokenType type(TokenId id) const { return types_[id]; }
  /// Control and unknown tokens stand for no text.
  bool is_control(TokenId id) const;
  bool is_end_of_generation(TokenId id) const { return ends_generation_[id]; }

  /// The token that ordinary text of this spelling may become, or kNoToken. Never a control, unknown or byte
  /// token: these mean something else than their spelling.
  TokenId find(std::string_view piece) const;
  size_t longest_piece() const { return longest_piece_; } // bytes

  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId unknown() const { return unknown_; }

private:
  TokenId read_id(const GgufFile& file, std::string_view key) const;
  void mark_ends_of_generation(const GgufFile& file);

  std::vector<char> text_; // all pieces, one after the other
  std::vector<std::string_view> pieces_;
  std::vector<TokenType> types_;
  std::vector<bool> ends_generation_;
  std::unordered_map<std::string_view, TokenId> ordinary_;
  size_t longest_piece_ = 0;
  TokenId bos_ = kNoToken, eos_ = kNoToken, unknown_ = kNoToken;
};

/// The value of a key that must be there; else a FormatError that names it.
template <class T> T required(std::optional<T> value, std::string_view key) {
  if (!value)
    throw FormatError("the key " + std::string(key) + " is missing");
  return *std::move(value);
}

} // namespace millrace
