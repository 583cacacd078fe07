#include "model/text/symbol_merger.hpp"
#include "tests/text/vocab_files.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;
using testing::golden_tokenizer;

// The same cases in each run; RC_PARAMS from outside asks for others.
[[maybe_unused]] const int kSeeded = setenv("RC_PARAMS", "seed=1 max_success=300", 0);

/// Any bytes, with runs of text, blanks, control tokens' spellings and halves of characters among them.
rc::Gen<std::string> any_text() {
  static const std::vector<std::string> parts = {
      " ",    "  ",   "\n",      "\t",        "a",   "the",  " the",       "'s",
      "'LL",  "1",    "42",      "!?",        "é",   "中文", "😀",          "\xe4",
      "\xb8", "\xff", "e\u0301", "\u00a0",    "<s>", "</s>", "<|im_end|>", "<|endoftext|>",
      "<0",   "x41>", "\u200b",  "<|eot_id|>"};
  const auto part = rc::gen::oneOf(rc::gen::elementOf(parts), rc::gen::string<std::string>());
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(part),
                      [](const std::vector<std::string>& chosen) {
                        std::string text;
                        for (const std::string& p : chosen)
                          text += p;
                        return text;
                      });
}

const Tokenizer& any_of(const std::vector<std::string>& names) {
  return golden_tokenizer(*rc::gen::elementOf(names));
}

RC_GTEST_PROP(TokenizerProperties, ByteLevelVocabulariesGiveBackAnyBytes, ()) {
  const Tokenizer& tokenizer =
      any_of({"ggml-vocab-gpt-2", "ggml-vocab-qwen2", "tiny/bpe-gpt2", "tiny/bpe-llama3", "tiny/bpe-qwen2"});
  const std::string text = *any_text();

  RC_ASSERT(tokenizer.decode(tokenizer.encode(text, {})) == text);
}

RC_GTEST_PROP(TokenizerProperties, ByteFallbackGivesBackAnyBytes, ()) {
  const Tokenizer& tokenizer =
      any_of({"ggml-vocab-phi-3", "mistral-v1-vocab-only", "tiny/spm-llama", "tiny/spm-gemma"});
  const std::string text = *any_text();
  // A space after a user-defined token is doubled, and a mark that is written out becomes a space: so it is
  // in SentencePiece.
  RC_PRE(text.find("</s>") == std::string::npos && text.find("\u2581") == std::string::npos);

  RC_ASSERT(tokenizer.decode(tokenizer.encode(text, {})) == text);
}

RC_GTEST_PROP(TokenizerProperties, UserTextNeverYieldsControlTokens, ()) {
  const Tokenizer& tokenizer = any_of(
      {"ggml-vocab-gpt-2", "ggml-vocab-qwen2", "mistral-v1-vocab-only", "tiny/bpe-llama3", "tiny/spm-gemma"});

  const Ids ids = tokenizer.encode(*any_text(), {.add_bos = false});

  RC_ASSERT(std::ranges::none_of(ids, [&](TokenId id) { return tokenizer.is_control(id); }));
}

RC_GTEST_PROP(TokenizerProperties, NoMoreTokensThanBytes, ()) {
  const Tokenizer& tokenizer = any_of({"ggml-vocab-gpt-2", "ggml-vocab-qwen2", "tiny/bpe-llama3"});
  const std::string text = *any_text();

  RC_ASSERT(tokenizer.encode(text, {.add_bos = false, .parse_special = true}).size() <= text.size());
}

/// The definition of the merges: look for the best pair, join it, look again.
Ids merge_by_search(Ids symbols, const std::map<std::pair<TokenId, TokenId>, Merge>& merges) {
  for (;;) {
    size_t best = symbols.size();
    Merge best_merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges.find({symbols[i], symbols[i + 1]});
      if (found != merges.end() && (best == symbols.size() || found->second.rank < best_merge.rank)) {
        best = i;
        best_merge = found->second;
      }
    }
    if (best == symbols.size())
      return symbols;
    symbols[best] = best_merge.id;
    symbols.erase(symbols.begin() + best + 1);
  }
}

RC_GTEST_PROP(SymbolMergerProperties, MergesAsTheDefinitionSays, ()) {
  // New tokens from 3 on, made of two earlier ones each; ranks may be equal.
  std::map<std::pair<TokenId, TokenId>, Merge> merges;
  for (TokenId id = 3; id < 12; ++id) {
    const TokenId left = *rc::gen::inRange(0, id), right = *rc::gen::inRange(0, id);
    merges.try_emplace({left, right}, Merge{static_cast<uint32_t>(*rc::gen::inRange(0, 6)), id});
  }
  const auto text = *rc::gen::container<Ids>(rc::gen::inRange(0, 3));

  SymbolMerger merger;
  for (const TokenId id : text)
    merger.add(id, 1);
  merger.run([&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const auto found = merges.find({left.id, right.id});
    return found == merges.end() ? std::nullopt : std::optional(found->second);
  });
  Ids merged;
  merger.for_each([&](const Symbol& symbol) { merged.push_back(symbol.id); });

  RC_ASSERT(merged == merge_by_search(text, merges));
}

} // namespace
} // namespace millrace
