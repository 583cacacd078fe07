#include "model/text/special_tokens.hpp"

#include <algorithm>

namespace millrace {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary, std::span<const TokenType> types) {
  for (TokenId id = 0; id < vocabulary.size(); ++id)
    if (!vocabulary.piece(id).empty() && std::ranges::find(types, vocabulary.type(id)) != types.end())
      entries_.push_back({vocabulary.piece(id), id, vocabulary.is_control(id)});
  std::ranges::stable_sort(entries_, {}, &Entry::spelling);
  // Algorithms that return a subrange don't compile with clang 14 and libstdc++ 12, which the fuzz targets
  // need.
  const auto same_spelling = [](const Entry& a, const Entry& b) { return a.spelling == b.spelling; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same_spelling), entries_.end());

  for (size_t i = 0; i < entries_.size(); ++i) {
    auto& [first, last] = by_first_byte_[static_cast<unsigned char>(entries_[i].spelling[0])];
    if (last == 0)
      first = i;
    last = i + 1;
  }
}

std::vector<Fragment> SpecialTokens::split(std::string_view text) const {
  const RenderedPrompt::Range all = {0, text.size()};
  return split(text, {&all, 1});
}

std::vector<Fragment> SpecialTokens::split(std::string_view text,
                                           std::span<const RenderedPrompt::Range> trusted) const {
  std::vector<Fragment> fragments;
  size_t ordinary_begin = 0;
  const auto flush_ordinary = [&](size_t end) {
    if (end > ordinary_begin)
      fragments.push_back({text.substr(ordinary_begin, end - ordinary_begin)});
  };
  auto range = trusted.begin(); // the first that ends behind i
  for (size_t i = 0; i < text.size();) {
    while (range != trusted.end() && range->end <= i)
      ++range;
    const bool is_trusted = range != trusted.end() && range->begin <= i;
    const Entry* found = longest_at(text.substr(i), is_trusted ? range->end - i : 0);
    if (found && !is_trusted && range != trusted.end() &&
        has_control_at(text, range->begin, i + found->spelling.size(), range->end))
      found = nullptr;
    if (!found) {
      ++i;
      continue;
    }
    flush_ordinary(i);
    fragments.push_back({text.substr(i, found->spelling.size()), found->id});
    i += found->spelling.size();
    ordinary_begin = i;
  }
  flush_ordinary(text.size());
  return fragments;
}

// Whether a control token that is wholly trusted begins in [begin, end).
bool SpecialTokens::has_control_at(std::string_view text, size_t begin, size_t end,
                                   size_t trusted_end) const {
  for (size_t i = begin; i < std::min(end, trusted_end); ++i)
    if (const Entry* found = longest_at(text.substr(i), trusted_end - i); found && found->control)
      return true;
  return false;
}

// Entries [first, last) share the first `size` bytes with the text; a spelling of just that size sorts before
// the others.
const SpecialTokens::Entry* SpecialTokens::longest_at(std::string_view text, size_t trusted_size) const {
  const auto byte_at = [](size_t i) {
    return [i](const Entry& entry) { return static_cast<unsigned char>(entry.spelling[i]); };
  };
  const auto [begin, end] = by_first_byte_[static_cast<unsigned char>(text[0])];
  auto first = entries_.begin() + begin;
  auto last = entries_.begin() + end;
  const Entry* longest = nullptr;
  for (size_t size = 1; first != last; ++size) {
    if (first->spelling.size() == size) {
      if (!first->control || size <= trusted_size)
        longest = &*first;
      ++first;
    }
    if (size == text.size())
      break;
    const auto next = static_cast<unsigned char>(text[size]);
    first = std::ranges::lower_bound(first, last, next, {}, byte_at(size));
    last = std::ranges::upper_bound(first, last, next, {}, byte_at(size));
  }
  return longest;
}

} // namespace millrace
