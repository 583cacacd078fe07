#pragma once

#include "actors/messages.hpp"
#include "model/device.hpp"

#include <optional>
#include <vector>

namespace millrace {

/// The sequences that decode together. Each step feeds one row of each and waits for the tokens that are drawn; what is admitted
/// meanwhile joins the next step. Blocks are taken as sequences grow; where none is left, the one of the highest rank gives its own
/// back and is to be read again later: nothing is lost by that but time.
class RunningBatch {
public:
  /// share_output: whether blocks that hold output may serve others (Device::one_path()).
  explicit RunningBatch(bool share_output) : share_output_(share_output) {}

  void admit(LocalSequence sequence);
  /// Drops a sequence and its blocks; false if it is not here.
  bool cancel(const SequenceId& id);
  bool empty() const { return running_.empty(); }
  size_t size() const { return running_.size(); }

  struct Step {
    std::vector<Row> rows; // all want logits
    std::vector<SequenceId> sequences;
    std::vector<SequenceId> preempted; // gone for lack of blocks
    int64_t visible = 0;               // positions that the rows see
  };
  /// The rows of all sequences that have blocks for them. apply() comes before the next, unless there are no rows.
  Step plan(BlockManager& blocks);

  /// Takes a sequence out, to be read again later; false if it is in a step, which apply() tells then, or not here: one that
  /// comes yields after its first step.
  bool yield(const SequenceId& id);
  struct Applied {
    size_t left = 0;                 // sequences that are gone
    std::vector<SequenceId> yielded; // of these, the ones that are to be read again
  };
  /// Moves the sequences of the step on and drops those that have ended or yield.
  Applied apply(const LocalNextIds& next, BlockManager& blocks);

private:
  struct Running : LocalSequence {
    Running(LocalSequence sequence) : LocalSequence(std::move(sequence)) {}
    bool yields = false; // after the step
    int32_t position() const { return int32_t(tokens.size()) - 1; } // of the row to feed
  };

  Running* find(const SequenceId& id);
  /// Gives each sequence a block for its row, those of low rank first.
  void grow(BlockManager& blocks, Step& step);

  bool share_output_;
  std::vector<Running> running_; // cancelled ones of the step stay without blocks until apply()
  size_t stepping_ = 0;          // the first so many are in the step
  std::optional<SequenceId> yields_; // the latest one that was to yield and was not here
};

} // namespace millrace
