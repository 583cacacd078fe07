#pragma once

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

private:
  struct Entry {
    std::string_view spelling;
    TokenId id;
  };
  const Entry* longest_at(std::string_view text) const;

  std::vector<Entry> entries_;                                 // sorted by spelling
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_{}; // ranges of entries_
};

} // namespace millrace
