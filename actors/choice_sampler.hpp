#pragma once

#include "actors/messages.hpp"
#include "messages/error.hpp"
#include "model/sampler.hpp"
#include "model/text/tokenizer.hpp"

#include <deque>
#include <optional>

namespace millrace {

/// All that sampling keeps of one sequence: penalties, stop strings, half characters, tokens whose text is not decided yet. A
/// pure function of the sequence and the ids it has emitted, so any owner can build it again.
class ChoiceSampler {
public:
  /// Replays sequence.emitted_ids. tokenizer must outlive this.
  ChoiceSampler(const Sequence& sequence, const Tokenizer& tokenizer);

  /// The end that the replayed ids contain already, since their last owner died before it could tell: nothing is to be drawn
  /// then.
  std::optional<Sampled> reached_end();

  struct Outcome {
    TokenId next = LocalNextIds::kEnded; // what to feed, or kEnded or kFailed
    Sampled sampled;
  };
  /// Draws the next token. Not to be called after the end.
  Outcome draw(std::span<const float> logits);

private:
  struct Drawn {
    TokenId id = 0;
    float logprob = 0;
    std::vector<TokenLogprob> top;
  };

  bool ends(TokenId id) const;
  /// Counts a token of the output and returns whether a stop string is complete.
  bool take(Drawn drawn, std::vector<SampledToken>& decided);
  void release(std::vector<ReleasedToken> released, std::vector<SampledToken>& decided);
  Drawn describe(Draw draw) const;
  Outcome end(Sampled sampled, FinishReason reason, Error error = Error::none);

  const Tokenizer& tokenizer_;
  SequenceId id_;
  int32_t max_tokens_;
  std::vector<TokenId> stop_ids_;
  bool ignore_eos_;
  int top_n_;
  int64_t emitted_elsewhere_; // tokens below this index have been told by an earlier owner
  int64_t generated_ = 0;
  FinishReason reached_ = FinishReason::none; // by the replayed ids
  Sampler sampler_;
  StopMatcher matcher_;
  std::deque<Drawn> undecided_; // the latest tokens, as many as the matcher holds back
};

} // namespace millrace
