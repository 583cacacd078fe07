#include "actors/scheduler/running_batch.hpp"

#include "kernels/attention.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {

RunningBatch::Running* RunningBatch::find(const SequenceId& id) {
  const auto found =
      std::ranges::find_if(running_, [&](const Running& sequence) { return sequence.id == id && sequence.blocks; });
  return found == running_.end() ? nullptr : &*found;
}

void RunningBatch::admit(LocalSequence sequence) {
  Running& running = running_.emplace_back(std::move(sequence));
  running.yields = running.id == yields_;
}

bool RunningBatch::cancel(const SequenceId& id) {
  Running* sequence = find(id);
  if (!sequence)
    return false;
  if (size_t(sequence - running_.data()) < stepping_)
    sequence->blocks.reset(); // the tokens that come will be in the order of the step
  else
    running_.erase(running_.begin() + (sequence - running_.data()));
  return true;
}

bool RunningBatch::yield(const SequenceId& id) {
  Running* sequence = find(id);
  if (!sequence) {
    yields_ = id; // one at a time: Ledger::yield()
    return false;
  }
  if (size_t(sequence - running_.data()) < stepping_) {
    sequence->yields = true;
    return false;
  }
  return cancel(id);
}

RunningBatch::Step RunningBatch::plan(BlockManager& blocks) {
  assert(stepping_ == 0);
  Step step;
  grow(blocks, step);
  for (const Running& sequence : running_) {
    step.rows.push_back({.token = sequence.tokens.back(),
                         .position = sequence.position(),
                         .blocks = sequence.blocks->blocks(),
                         .wants_logits = true});
    step.sequences.push_back(sequence.id);
    step.visible += sequence.position() + 1;
  }
  stepping_ = running_.size();
  return step;
}

void RunningBatch::grow(BlockManager& blocks, Step& step) {
  std::vector<Running*> by_rank;
  for (Running& sequence : running_)
    by_rank.push_back(&sequence);
  std::ranges::sort(by_rank, {}, &Running::rank);
  for (size_t i = 0; i < by_rank.size(); ++i) {
    Running& sequence = *by_rank[i];
    while (sequence.blocks && !blocks.grow(*sequence.blocks, sequence.position() + 1)) {
      Running& last = *by_rank.back(); // perhaps this one
      by_rank.pop_back();
      step.preempted.push_back(last.id);
      last.blocks.reset();
    }
  }
  std::erase_if(running_, [](const Running& sequence) { return !sequence.blocks; });
}

RunningBatch::Applied RunningBatch::apply(const LocalNextIds& next, BlockManager& blocks) {
  assert(next.ids.size() == stepping_);
  Applied applied;
  for (size_t i = 0; i < stepping_; ++i) {
    Running& sequence = running_[i];
    if (!sequence.blocks)
      continue;
    const TokenId id = next.ids[i];
    if (share_output_ && id != LocalNextIds::kFailed && sequence.tokens.size() % kBlockSize == 0)
      blocks.publish(*sequence.blocks, sequence.tokens);
    if (id >= 0)
      sequence.tokens.push_back(id);
    if (id >= 0 && !sequence.yields)
      continue;
    sequence.blocks.reset();
    ++applied.left;
    if (id >= 0)
      applied.yielded.push_back(sequence.id);
  }
  stepping_ = 0;
  std::erase_if(running_, [](const Running& sequence) { return !sequence.blocks; });
  return applied;
}

} // namespace millrace
