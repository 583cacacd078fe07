#pragma once

#include "model/text/vocabulary.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace millrace {

/// A stretch of the text that is one token, or a character that is none (yet).
struct Symbol {
  TokenId id = kNoToken;
  int32_t begin = 0, size = 0;      // bytes of the text
  int32_t previous = -1, next = -1; // in the list of what is left; -1: none
};

/// Two neighbours that may become one: of all of them the lowest rank goes first, of equal ranks the
/// leftmost.
struct Merge {
  uint32_t rank = 0;
  TokenId id = kNoToken; // of the token that they become
};

/// Byte-pair encoding's loop. A list of symbols and a heap of possible merges: n log n in the symbols, where
/// a search for the best pair after each merge would be quadratic on long runs of one letter. Keeps its
/// memory from word to word.
class SymbolMerger {
public:
  void clear() { symbols_.clear(); }
  void add(TokenId id, int32_t size) {
    const auto index = static_cast<int32_t>(symbols_.size());
    int32_t begin = 0;
    if (index > 0) {
      symbols_.back().next = index;
      begin = symbols_.back().begin + symbols_.back().size;
    }
    symbols_.push_back({.id = id, .begin = begin, .size = size, .previous = index - 1});
  }

  /// Merges until nothing more can be. find_merge(left, right) tells what two neighbours become:
  /// std::optional<Merge>.
  template <class FindMerge> void run(FindMerge&& find_merge) {
    candidates_.clear();
    for (int32_t i = 0; i < static_cast<int32_t>(symbols_.size()); ++i)
      consider(i, find_merge);
    while (!candidates_.empty()) {
      std::ranges::pop_heap(candidates_, std::greater{}, &Candidate::order);
      const Candidate best = candidates_.back();
      candidates_.pop_back();
      Symbol& left = symbols_[static_cast<uint32_t>(best.order)];
      // Symbols only grow, and always to the right: a pair that spans as much as it did is still the same
      // pair.
      if (left.size == 0 || left.next < 0 || left.size + symbols_[left.next].size != best.size)
        continue;
      join(left, best.id);
      consider(left.previous, find_merge);
      consider(static_cast<int32_t>(&left - symbols_.data()), find_merge);
    }
  }

  /// Calls visit(symbol) for what is left, in order.
  template <class Visit> void for_each(Visit&& visit) const {
    for (int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[i].next)
      visit(symbols_[i]);
  }

private:
  struct Candidate {
    uint64_t order; // rank in the high half, index of the left symbol in the low one
    TokenId id;
    int32_t size; // of both symbols when they were considered
  };

  template <class FindMerge> void consider(int32_t index, FindMerge& find_merge) {
    if (index < 0 || symbols_[index].next < 0)
      return;
    const Symbol& left = symbols_[index];
    const Symbol& right = symbols_[left.next];
    if (const std::optional<Merge> merge = find_merge(left, right)) {
      candidates_.push_back(
          {uint64_t{merge->rank} << 32 | static_cast<uint32_t>(index), merge->id, left.size + right.size});
      std::ranges::push_heap(candidates_, std::greater{}, &Candidate::order);
    }
  }

  void join(Symbol& left, TokenId id) {
    Symbol& right = symbols_[left.next];
    left.id = id;
    left.size += right.size;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0)
      symbols_[left.next].previous = static_cast<int32_t>(&left - symbols_.data());
  }

  std::vector<Symbol> symbols_; // the first of them never leaves the list
  std::vector<Candidate> candidates_;
};

} // namespace millrace
