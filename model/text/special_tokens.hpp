#pragma once

#include "model/text/chat/chat_template.hpp"
#include "model/text/vocabulary.hpp"

#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// A stretch of text, or a special token that stood between two of them.
struct Fragment {
  std::string_view text;
  TokenId special = kNoToken; // kNoToken: text is ordinary
};

/// Finds the spellings of certain tokens in text: at each position the longest, from left to right, so that
/// text which overlaps with an earlier find is ordinary. Time is linear in the text times the longest
/// spelling.
class SpecialTokens {
public:
  /// The vocabulary's tokens of these types; it must outlive this object. Of equal spellings the lowest id is
  /// found.
  SpecialTokens(const Vocabulary& vocabulary, std::span<const TokenType> types);

  /// In order, none empty; the texts view into `text`.
  std::vector<Fragment> split(std::string_view text) const;
  /// Likewise, with control and unknown tokens only where all of their text is trusted (ascending ranges).
  /// What is not trusted takes no byte of such a token away: a user-defined token that would reach into it is
  /// not found.
  std::vector<Fragment> split(std::string_view text, std::span<const RenderedPrompt::Range> trusted) const;

private:
  struct Entry {
    std::string_view spelling;
    TokenId id;
    bool control; // or unknown
  };
  const Entry* longest_at(std::string_view text, size_t trusted_size) const;
  bool has_control_at(std::string_view text, size_t begin, size_t end, size_t trusted_end) const;

  std::vector<Entry> entries_;                                 // sorted by spelling
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_{}; // ranges of entries_
};

} // namespace millrace
