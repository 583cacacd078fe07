#pragma once

// What the actors tell each other that no client ever sees. The first three may cross processes one day, so they are made like
// the messages of messages/; the local ones hold pointers into this process.

#include "messages/sequence.hpp"
#include "model/block_manager.hpp"

#include <memory>
#include <optional>

namespace millrace {

/// prefill -> dispatch: a sequence has blocks for its prompt, and it is in the next pass.
struct SequenceStarted {
  static constexpr std::string_view kType = "sequence_started";
  SequenceId sequence;
  int32_t cached_tokens = 0; // positions that the prefix cache held
  MILLRACE_FIELDS(sequence, cached_tokens)
};

/// dispatch -> prefill and decode, these -> sampler: nobody wants this sequence any more.
struct CancelSequence {
  static constexpr std::string_view kType = "cancel_sequence";
  SequenceId sequence;
  int64_t pass = 0; // passes of the device when that was known
  MILLRACE_FIELDS(sequence, pass)
};

/// dispatch -> decode: this sequence makes room for another and goes on later.
struct YieldSequence {
  static constexpr std::string_view kType = "yield_sequence";
  SequenceId sequence;
  MILLRACE_FIELDS(sequence)
};

/// decode -> dispatch: a sequence has given its blocks back and waits for its turn to be read again.
struct SequencePreempted {
  static constexpr std::string_view kType = "sequence_preempted";
  SequenceId sequence;
  bool yielded = false; // since dispatch wished so, not for lack of blocks
  MILLRACE_FIELDS(sequence, yielded)
};

/// What one draw has decided for one sequence. Tokens and end travel together: dispatch learns of both or of neither.
struct Sampled {
  SequenceId sequence;
  std::vector<SampledToken> tokens; // whose text is decided now
  std::string reason;               // FinishReason; empty while the sequence goes on
  std::string text;                 // at the end: characters held back until now
  std::string error;                // Error, if reason is "error"
  MILLRACE_FIELDS(sequence, tokens, reason, text, error)
};

/// sampler -> dispatch: the outcome of one pass.
struct SampledBatch {
  static constexpr std::string_view kType = "sampled_batch";
  std::vector<Sampled> sequences;
  MILLRACE_FIELDS(sequences)
};

/// tokenizer -> dispatch, local: a request that an earlier process began.
struct LocalResumption {
  struct Choice {
    std::vector<TokenId> emitted_ids;
    uint32_t epoch = 0;
    bool finished = false;      // readers have its end
    std::optional<Sampled> end; // that its emitted ids contain, which readers may lack
  };
  Prompt prompt;               // without token ids if there is an error
  std::vector<Choice> choices; // all of them
  int32_t scored = 0;          // prompt tokens whose log-probs readers have
  std::string error = {};      // Error: its prompt can't be encoded any more
};

/// prefill or decode -> sampler, local: the logits of one pass. The sender leaves the buffer alone until it has the answer.
struct LocalLogits {
  std::shared_ptr<const std::vector<float>> values; // [sequences, vocab_size] or longer, row-major
  std::vector<SequenceId> sequences;                // of the rows
};

/// sampler -> prefill or decode, local: what follows in each row of LocalLogits.
struct LocalNextIds {
  static constexpr TokenId kEnded = -1, kFailed = -2;
  std::vector<TokenId> ids; // kEnded: the sequence has ended; kFailed: its logits were no numbers
};

/// prefill -> decode, local: a sequence whose prompt is in the cache. Whoever holds it owns the blocks.
struct LocalSequence {
  SequenceId id;
  std::shared_ptr<BlockTable> blocks; // cover what was read; more are taken as it grows
  std::vector<TokenId> tokens = {};   // prompt and output; the last one is not in the cache yet
  int32_t prompt_size = 0;            // of the tokens
  uint64_t rank = 0;                  // as in Sequence
};

} // namespace millrace
