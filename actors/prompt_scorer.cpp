#include "actors/prompt_scorer.hpp"

#include "model/logprobs.hpp"

#include <algorithm>

namespace millrace {
namespace {

constexpr int32_t kMaxRows = 128;
constexpr int32_t kMaxLogits = 16 << 20;

} // namespace

int32_t scored_rows_of_a_pass(int32_t vocab_size) {
  return std::clamp(kMaxLogits / vocab_size, 1, kMaxRows);
}

std::optional<PromptLogprobs> score(const PromptQueue::Piece& piece, std::span<const float> logits,
                                    size_t vocab_size, const Tokenizer& tokenizer) {
  const Sequence& sequence = *piece.sequence;
  const auto top_n = size_t(sequence.prompt_logprobs.value_or(0));
  PromptLogprobs scored{.request = sequence.id.request,
                        .choice = sequence.id.choice,
                        .epoch = sequence.id.epoch,
                        .position = piece.begin,
                        .tokens = {}};
  for (int32_t position = piece.begin; position < piece.end; ++position) {
    const TokenId id = sequence.prompt_ids[size_t(position)];
    PromptToken& token = scored.tokens.emplace_back();
    token.id = id;
    token.bytes.data = tokenizer.bytes(id);
    if (position == 0)
      continue;
    const Logprobs logprobs(logits.first(vocab_size));
    logits = logits.subspan(vocab_size);
    if (!logprobs.finite())
      return std::nullopt;
    token.logprob = logprobs.of(id);
    for (const auto& [candidate, logprob] : logprobs.most_likely(top_n))
      token.top.push_back(
          {.id = candidate, .bytes = {std::string(tokenizer.bytes(candidate))}, .logprob = logprob});
  }
  return scored;
}

} // namespace millrace
