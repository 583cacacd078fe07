#pragma once

#include "actors/messages.hpp"
#include "messages/stream.hpp"
#include "model/device.hpp"

#include <deque>
#include <list>
#include <optional>

namespace millrace {

/// Decides which rows of which prompts are in the next pass.
///
/// A sequence is started, in the order of arrival, once there are blocks for all that is to be read of it; one that reads ahead
/// (Sequence::ahead) passes those that do not, but only so many pass one. What the prefix cache holds is skipped. One that would
/// soon find much more there, as another is being read, waits for that one. Of those that are started, the ones that read ahead come first, and of each kind the ones with the
/// least left, so that a short prompt passes long ones; the oldest of each kind has a part of each pass, so that it comes to its
/// end whatever else arrives.
class PromptQueue {
public:
  /// scored_budget: rows of a pass that may want logits for their prompt's log-probs, at least 1. share_output: whether blocks
  /// that hold output may come from the cache, too (Device::one_path()).
  PromptQueue(int32_t scored_budget, bool share_output) : scored_budget_(scored_budget), share_output_(share_output) {}

  void push(Sequence sequence);
  /// False if it is not here.
  bool cancel(const SequenceId& id);
  /// Whether nothing is left to be planned.
  bool idle() const { return waiting_.empty() && reading_.empty(); }

  /// Tokens of a prompt whose log-probs a pass gives. The first token of a prompt has none, all others have a row of logits.
  struct Piece {
    const Sequence* sequence = nullptr; // valid until cancel() or advance()
    int32_t begin = 0, end = 0;         // positions of the tokens
    size_t logits_row = 0;              // of the first one that has a row
  };
  struct Start {
    const Sequence* sequence = nullptr; // valid as those of pieces
    int32_t cached = 0;                 // positions that the cache held
    std::optional<BlockCopy> copy;      // to be made before the pass
  };
  struct Pass {
    std::vector<Row> rows; // the last row of a prompt wants logits, unless no token is to be drawn
    std::vector<Start> started;
    std::vector<Piece> pieces;
    size_t wanted = 0; // rows that want logits
  };
  /// Plans a pass of at most so many rows, at least 1. It has none where nothing waits or no blocks are free for the first.
  Pass plan(BlockManager& blocks, int32_t budget);

  struct Read {
    std::vector<Progress> progress;
    std::vector<SequenceId> complete;
    std::vector<size_t> logits_rows; // of those that are complete, ascending
    std::vector<SequenceId> ended;   // those of which nothing is to be drawn
  };
  /// The planned pass has been run. What is complete waits for hand_on().
  Read advance();
  /// The sequences that go on to decode, with the tokens that were drawn for what advance() called complete. Their blocks serve
  /// others from now on, unless their logits were no numbers.
  std::vector<LocalSequence> hand_on(const LocalNextIds& next, BlockManager& blocks);

private:
  struct Reading {
    explicit Reading(Sequence sequence);
    int32_t prompt_size() const { return int32_t(sequence.prompt_ids.size()); }
    int32_t length() const { return int32_t(tokens.size()); }
    int32_t left() const { return length() - read; }
    bool draws() const { return sequence.max_tokens > 0; }
    /// The first row from `read` on that gives a log-prob of the prompt; prompt_size() - 1 is the first that gives none.
    int32_t first_scored_row() const;

    Sequence sequence;
    std::vector<TokenId> tokens; // prompt and emitted ids
    std::shared_ptr<BlockTable> blocks = nullptr;
    int32_t read = 0;      // rows that are in the cache
    int32_t planned = 0;   // rows of the planned pass
    int32_t passed = 0;    // by so many sequences, while it waited
    int32_t scored;        // tokens of the prompt that need no log-prob any more
    size_t logits_row = 0; // of the last row, in the pass that ends
  };

  void start(BlockManager& blocks, Pass& pass);
  /// What others may have of tokens that were read.
  std::span<const TokenId> to_publish(std::span<const TokenId> tokens, int32_t prompt_size) const;
  std::span<const TokenId> cacheable(const Reading& reading) const;
  bool is_worth_waiting(const Reading& reading, const BlockManager& blocks) const;
  /// Rows that a prompt may have in this pass.
  int32_t share(const Reading& reading, const Pass& pass, int32_t budget) const;
  void add_rows(Reading& reading, Pass& pass, int32_t budget);
  /// Fills the pass up to the budget; the first, which is the oldest, has a quarter of what is left of it.
  void add_kind(const std::vector<Reading*>& readings, Pass& pass, int32_t budget);

  int32_t scored_budget_;
  bool share_output_;
  std::deque<Reading> waiting_;    // without blocks
  std::list<Reading> reading_;     // in the order of their start
  std::vector<Reading*> in_pass_;  // of the planned pass, in the order of its rows
  std::vector<std::optional<LocalSequence>> complete_; // cancelled ones leave a gap
};

} // namespace millrace
