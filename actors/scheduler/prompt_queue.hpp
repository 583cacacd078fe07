#pragma once

#include "actors/messages.hpp"
#include "messages/stream.hpp"
#include "model/device.hpp"

#include <deque>
#include <optional>

namespace millrace {

/// Decides which rows of which prompts are in the next pass: first come, first served, short prompts packed
/// together, long ones in chunks. A sequence gets the blocks for all that it may ever generate when its first
/// row is planned, and none before.
class PromptQueue {
public:
  /// budget: rows of one pass; scored_budget: how many of them may want logits for their prompt's log-probs.
  /// Both at least 1.
  PromptQueue(int32_t budget, int32_t scored_budget) : budget_(budget), scored_budget_(scored_budget) {}

  void push(Sequence sequence);
  /// An unknown one is ignored.
  void cancel(const SequenceId& id);
  /// Whether nothing is left to be planned.
  bool idle() const { return waiting_.empty() && reading_.empty(); }

  /// Tokens of a prompt whose log-probs a pass gives. The first token of a prompt has none, all others have a
  /// row of logits.
  struct Piece {
    const Sequence* sequence = nullptr; // valid until cancel() or advance()
    int32_t begin = 0, end = 0;         // positions of the tokens
    size_t logits_row = 0;              // of the first one that has a row
  };
  struct Pass {
    std::vector<Row> rows; // the last row of a prompt wants logits, unless no token is to be drawn
    std::vector<const Sequence*> started; // whose first rows these are; valid as those of pieces
    std::vector<Piece> pieces;
    size_t wanted = 0; // rows that want logits
  };
  /// Plans a pass; without rows where nothing waits or no blocks are free for the first that waits.
  Pass plan(BlockManager& blocks);

  struct Read {
    std::vector<Progress> progress;
    std::vector<SequenceId> complete;
    std::vector<size_t> logits_rows; // of those that are complete
    std::vector<SequenceId> ended;   // those of which nothing is to be drawn
  };
  /// The planned pass has been run. What is complete waits for hand_on().
  Read advance();
  /// The sequences that go on to decode, with the tokens that were drawn for what advance() called complete.
  std::vector<LocalSequence> hand_on(const LocalNextIds& next);

private:
  struct Reading {
    explicit Reading(Sequence sequence);
    int32_t prompt_size() const { return int32_t(sequence.prompt_ids.size()); }
    int32_t length() const { return int32_t(sequence.prompt_ids.size() + sequence.emitted_ids.size()); }
    bool draws() const { return sequence.max_tokens > 0; }
    bool ends() const { return read + planned == length(); }
    TokenId token(int32_t position) const;
    int64_t positions() const; // that it may ever have in the cache
    /// The first row from `read` on that gives a log-prob of the prompt; prompt_size() - 1 is the first that
    /// gives none.
    int32_t first_scored_row() const;

    Sequence sequence;
    std::shared_ptr<BlockTable> blocks = nullptr;
    int32_t read = 0;      // rows that are in the cache
    int32_t planned = 0;   // rows of the planned pass
    int32_t scored;        // tokens of the prompt that need no log-prob any more
    size_t logits_row = 0; // of the last row, in the pass that ends
  };

  /// Rows that a prompt may have in this pass.
  int32_t share(const Reading& reading, const Pass& pass) const;
  void add_rows(Reading& reading, Pass& pass) const;

  int32_t budget_, scored_budget_;
  std::deque<Reading> waiting_; // without blocks
  std::deque<Reading> reading_; // partly read; all but the last end with the planned pass
  std::vector<std::optional<LocalSequence>> complete_; // cancelled ones leave a gap
};

} // namespace millrace
