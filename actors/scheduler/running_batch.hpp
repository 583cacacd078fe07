#pragma once

#include "actors/messages.hpp"
#include "model/device.hpp"

#include <span>
#include <vector>

namespace millrace {

/// The sequences that decode together. Each step feeds one row of each and waits for the tokens that are drawn; what is admitted
/// meanwhile joins the next step.
class RunningBatch {
public:
  void admit(LocalSequence sequence) { running_.push_back(std::move(sequence)); }
  /// Drops a sequence and its blocks; false if it is not here.
  bool cancel(const SequenceId& id);
  bool empty() const { return running_.empty(); }

  struct Step {
    std::vector<Row> rows; // all want logits
    std::vector<SequenceId> sequences;
  };
  /// The rows of all sequences. apply() comes before the next.
  Step plan();
  /// Moves the sequences of the step on and drops those that have ended; returns how many those are.
  size_t apply(const LocalNextIds& next);

private:
  std::vector<LocalSequence> running_; // cancelled ones of the step stay without blocks until apply()
  size_t stepping_ = 0;                // the first so many are in the step
};

} // namespace millrace
