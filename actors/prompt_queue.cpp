#include "actors/prompt_queue.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {

void PromptQueue::push(Sequence sequence) { waiting_.push_back(std::move(sequence)); }

void PromptQueue::cancel(const SequenceId& id) {
  std::erase_if(waiting_, [&](const Sequence& sequence) { return sequence.id == id; });
  std::erase_if(reading_, [&](const Reading& reading) { return reading.sequence.id == id; });
  for (auto& sequence : complete_)
    if (sequence && sequence->id == id)
      sequence.reset();
}

PromptQueue::Pass PromptQueue::plan(BlockManager& blocks) {
  Pass pass;
  for (Reading& reading : reading_)
    add_rows(reading, pass);

  while (!waiting_.empty() && int32_t(pass.rows.size()) < budget_) {
    const Sequence& first = waiting_.front();
    // The last generated token is never fed.
    auto table = blocks.allocate(int64_t(first.prompt_ids.size()) + first.max_tokens - 1);
    if (!table)
      break;
    reading_.push_back({.sequence = std::move(waiting_.front()), .blocks = std::move(table)});
    waiting_.pop_front();
    add_rows(reading_.back(), pass);
    pass.started.push_back(&reading_.back().sequence); // a deque's elements stay where they are
  }
  return pass;
}

TokenId PromptQueue::Reading::token(int32_t position) const {
  const auto prompt_size = int32_t(sequence.prompt_ids.size());
  return position < prompt_size ? sequence.prompt_ids[position] : sequence.emitted_ids[position - prompt_size];
}

void PromptQueue::add_rows(Reading& reading, Pass& pass) const {
  reading.planned = std::min(reading.length() - reading.read, budget_ - int32_t(pass.rows.size()));
  for (int32_t position = reading.read; position < reading.read + reading.planned; ++position)
    pass.rows.push_back({.token = reading.token(position),
                         .position = position,
                         .blocks = reading.blocks->blocks(),
                         .wants_logits = position + 1 == reading.length()});
}

PromptQueue::Read PromptQueue::advance() {
  assert(complete_.empty());
  Read result;
  for (Reading& reading : reading_) {
    reading.read += reading.planned;
    const SequenceId& id = reading.sequence.id;
    const auto total = int32_t(reading.sequence.prompt_ids.size());
    result.progress.push_back({.request = id.request,
                               .choice = id.choice,
                               .epoch = id.epoch,
                               .processed = std::min(reading.read, total),
                               .total = total});
  }
  while (!reading_.empty() && reading_.front().read == reading_.front().length()) {
    Reading& reading = reading_.front();
    result.complete.push_back(reading.sequence.id);
    complete_.push_back(LocalSequence{.id = reading.sequence.id,
                                      .blocks = std::move(reading.blocks),
                                      .position = reading.length()});
    reading_.pop_front();
  }
  return result;
}

std::vector<LocalSequence> PromptQueue::hand_on(const LocalNextIds& next) {
  assert(next.ids.size() == complete_.size());
  std::vector<LocalSequence> sequences;
  for (size_t i = 0; i < complete_.size(); ++i) {
    if (!complete_[i] || next.ids[i] == LocalNextIds::kEnded)
      continue;
    complete_[i]->token = next.ids[i];
    sequences.push_back(*std::move(complete_[i]));
  }
  complete_.clear();
  return sequences;
}

} // namespace millrace
