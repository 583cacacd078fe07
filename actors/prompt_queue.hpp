#pragma once

#include "actors/messages.hpp"
#include "messages/stream.hpp"
#include "model/device.hpp"

#include <deque>
#include <optional>

namespace millrace {

/// Decides which rows of which prompts are in the next pass: first come, first served, short prompts packed together, long ones
/// in chunks. A sequence gets the blocks for all that it may ever generate when its first row is planned, and none before.
class PromptQueue {
public:
  /// budget: rows of one pass.
  explicit PromptQueue(int32_t budget) : budget_(budget) {}

  void push(Sequence sequence);
  /// An unknown one is ignored.
  void cancel(const SequenceId& id);
  /// Whether nothing is left to be planned.
  bool idle() const { return waiting_.empty() && reading_.empty(); }

  struct Pass {
    std::vector<Row> rows;                // the last row of a prompt wants logits
    std::vector<const Sequence*> started; // whose first rows these are; valid until advance()
  };
  /// Plans a pass; without rows where nothing waits or no blocks are free for the first that waits.
  Pass plan(BlockManager& blocks);

  struct Read {
    std::vector<Progress> progress;
    std::vector<SequenceId> complete; // in the order of their logits
  };
  /// The planned pass has been run. What is complete waits for hand_on().
  Read advance();
  /// The sequences that go on to decode, with the tokens that were drawn for what advance() called complete.
  std::vector<LocalSequence> hand_on(const LocalNextIds& next);

private:
  struct Reading {
    Sequence sequence;
    std::shared_ptr<BlockTable> blocks;
    int32_t read = 0;    // rows that are in the cache
    int32_t planned = 0; // rows of the planned pass
    int32_t length() const { return int32_t(sequence.prompt_ids.size() + sequence.emitted_ids.size()); }
    TokenId token(int32_t position) const;
  };

  void add_rows(Reading& reading, Pass& pass) const;

  int32_t budget_;
  std::deque<Sequence> waiting_;
  std::deque<Reading> reading_;                        // partly read; all but the last end with the planned pass
  std::vector<std::optional<LocalSequence>> complete_; // cancelled ones leave a gap
};

} // namespace millrace
