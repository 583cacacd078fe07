#pragma once

// Where byte-level BPE may not merge: each family cuts text into words by regular expressions before it looks
// for pairs.

#include <memory>
#include <string_view>
#include <vector>

namespace millrace {

/// Immutable and thread-safe.
class Pretokenizer {
public:
  /// name: the value of tokenizer.ggml.pre. Throws FormatError that lists the known ones if it is not among
  /// them.
  explicit Pretokenizer(std::string_view name);
  ~Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;

  /// Words in order, which together are the text. A byte that is not part of a well-formed character is a
  /// word of its own.
  std::vector<std::string_view> split(std::string_view text) const;

  /// A word that is a token stays whole, whatever the merges say.
  bool keeps_whole_words() const { return keeps_whole_words_; }
  /// Whether a file of this family that doesn't say so wants BOS.
  bool adds_bos_by_default() const { return adds_bos_by_default_; }

private:
  class Regex;
  std::vector<Regex> stages_; // each cuts further what the one before it left
  bool keeps_whole_words_ = false;
  bool adds_bos_by_default_ = false;
};

} // namespace millrace
