#include "actors/scheduler/running_batch.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {

bool RunningBatch::cancel(const SequenceId& id) {
  const auto found = std::ranges::find_if(
      running_, [&](const LocalSequence& sequence) { return sequence.id == id && sequence.blocks; });
  if (found == running_.end())
    return false;
  if (size_t(found - running_.begin()) < stepping_)
    found->blocks.reset(); // the tokens that come will be in the order of the step
  else
    running_.erase(found);
  return true;
}

RunningBatch::Step RunningBatch::plan() {
  assert(stepping_ == 0);
  Step step;
  for (const LocalSequence& sequence : running_) {
    step.rows.push_back({.token = sequence.token,
                         .position = sequence.position,
                         .blocks = sequence.blocks->blocks(),
                         .wants_logits = true});
    step.sequences.push_back(sequence.id);
  }
  stepping_ = running_.size();
  return step;
}

size_t RunningBatch::apply(const LocalNextIds& next) {
  assert(next.ids.size() == stepping_);
  size_t ended = 0;
  for (size_t i = 0; i < stepping_; ++i) {
    LocalSequence& sequence = running_[i];
    if (!sequence.blocks)
      continue;
    ++sequence.position;
    sequence.token = next.ids[i];
    if (sequence.token == LocalNextIds::kEnded) {
      sequence.blocks.reset();
      ++ended;
    }
  }
  stepping_ = 0;
  std::erase_if(running_, [](const LocalSequence& sequence) { return !sequence.blocks; });
  return ended;
}

} // namespace millrace
