#pragma once

// From logits to a token. Order of operations, as in tests/golden/sampling.json:
//   logit bias -> repetition penalty -> frequency and presence penalty -> temperature
//   -> top-k -> top-p -> min-p -> draw
//
// The draw is a pure function of (seed, choice, index of the generated token): Philox4x32-10 (Salmon et al.
// 2011), so there is no random state to move when a sequence moves. The number in [0, 1) is laid on the kept
// probabilities from the most likely down, equal ones by id.

#include "model/logprobs.hpp"
#include "model/ranking.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace millrace {

using TokenId = int32_t;

struct SamplerParams {
  float temperature = 0.8f;     // 0: greedy, lowest id among equal logits
  int32_t top_k = 0;            // 0: off; ties at the cut are all kept
  float top_p = 0.95f;          // 1: off; smallest prefix of descending probability with mass >= p
  float min_p = 0.0f;           // 0: off; keeps p_i >= min_p * p_max
  float repetition_penalty = 1; // on ids of prompt and output, once an id: l < 0 ? l * r : l / r
  float frequency_penalty = 0;  // times the count of the id in the output
  float presence_penalty = 0;   // once if the id is in the output
  std::map<TokenId, float> logit_bias;
};

struct Draw {
  TokenId id = 0;
  float logprob = 0; // ln of the model's own softmax: before bias, penalties and temperature
  std::vector<std::pair<TokenId, float>> top; // the n most likely ids and their log-probs, most likely first
  bool finite = true; // false: a logit is NaN or +inf, or all are -inf; nothing was drawn
};

class Sampler {
public:
  /// params within the ranges of messages/PROTOCOL.md. Ids that the logits don't have are ignored.
  Sampler(SamplerParams params, uint64_t seed, int32_t choice, std::span<const TokenId> prompt_ids);

  /// Counts an id of the output: after each draw, and for each emitted id when a sequence moves here.
  void accept(TokenId id);

  /// Draws the next token; top_n log-probs are filled. Depends only on what was accepted and on the
  /// arguments. Not const: reuses buffers.
  Draw draw(std::span<const float> logits, int top_n);

  /// The distribution that draw() draws from, most likely first (equal ones by id). Empty where draw() says
  /// not finite.
  std::vector<Candidate> distribution(std::span<const float> logits);

private:
  struct Seen {
    TokenId id;
    int32_t output_count;
  };

  /// The entry of an id in seen_.
  Seen& see(TokenId id);
  /// The logits after bias and penalties: the argument itself, or a copy in logits_. All finite ones stay
  /// finite.
  std::span<const float> adjust(std::span<const float> logits);
  /// Ranks adjusted logits and cuts the ranking down to what may be drawn. Not for greedy decoding.
  void rank(std::span<const float> logits);

  SamplerParams params_;
  uint64_t seed_;
  int32_t choice_;
  int64_t index_ = 0;      // of the next generated token
  std::vector<Seen> seen_; // each id of the output and, for the repetition penalty, of the prompt
  std::unordered_map<TokenId, size_t> places_; // of the ids in seen_
  std::vector<float> logits_;                  // scratch
  Ranking ranking_;                            // scratch
};

} // namespace millrace
