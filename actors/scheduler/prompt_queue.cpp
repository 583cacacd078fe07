#include "actors/scheduler/prompt_queue.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {

void PromptQueue::push(Sequence sequence) {
  waiting_.emplace_back(std::move(sequence));
}

void PromptQueue::cancel(const SequenceId& id) {
  const auto is_it = [&](const Reading& reading) { return reading.sequence.id == id; };
  std::erase_if(waiting_, is_it);
  std::erase_if(reading_, is_it);
  for (auto& sequence : complete_)
    if (sequence && sequence->id == id)
      sequence.reset();
}

// ---- one prompt ----

PromptQueue::Reading::Reading(Sequence given)
    : sequence(std::move(given)),
      scored(sequence.prompt_logprobs ? std::min(sequence.scored, prompt_size()) : prompt_size()) {}

TokenId PromptQueue::Reading::token(int32_t position) const {
  return position < prompt_size() ? sequence.prompt_ids[position]
                                  : sequence.emitted_ids[position - prompt_size()];
}

int64_t PromptQueue::Reading::positions() const {
  // The last generated token is never fed.
  return int64_t(sequence.prompt_ids.size()) + std::max(sequence.max_tokens - 1, 0);
}

int32_t PromptQueue::Reading::first_scored_row() const {
  return std::max(read, std::max(scored, 1) - 1);
}

// ---- a pass ----

PromptQueue::Pass PromptQueue::plan(BlockManager& blocks) {
  Pass pass;
  for (Reading& reading : reading_)
    add_rows(reading, pass);

  while (!waiting_.empty() && (reading_.empty() || reading_.back().ends())) {
    Reading& first = waiting_.front();
    if (share(first, pass) == 0)
      break;
    first.blocks = blocks.allocate(first.positions());
    if (!first.blocks)
      break;
    reading_.push_back(std::move(first));
    waiting_.pop_front();
    add_rows(reading_.back(), pass);
    pass.started.push_back(&reading_.back().sequence); // a deque's elements stay where they are
  }
  return pass;
}

int32_t PromptQueue::share(const Reading& reading, const Pass& pass) const {
  const int32_t rows = std::min(reading.length() - reading.read, budget_ - int32_t(pass.rows.size()));
  const int32_t first = reading.first_scored_row();
  const int32_t left = std::max(scored_budget_ - int32_t(pass.wanted), 0);
  return reading.prompt_size() - 1 - first > left ? std::min(rows, first - reading.read + left) : rows;
}

void PromptQueue::add_rows(Reading& reading, Pass& pass) const {
  reading.planned = share(reading, pass);
  const int32_t end = reading.read + reading.planned;
  const int32_t first_scored = reading.first_scored_row(),
                end_scored = std::min(end, reading.prompt_size() - 1);
  if (reading.scored <= end_scored)
    pass.pieces.push_back({.sequence = &reading.sequence,
                           .begin = reading.scored,
                           .end = end_scored + 1,
                           .logits_row = pass.wanted});

  for (int32_t position = reading.read; position < end; ++position) {
    const bool scores = position >= first_scored && position < end_scored;
    const bool draws = reading.draws() && position + 1 == reading.length();
    if (draws)
      reading.logits_row = pass.wanted;
    pass.wanted += scores || draws;
    pass.rows.push_back({.token = reading.token(position),
                         .position = position,
                         .blocks = reading.blocks->blocks(),
                         .wants_logits = scores || draws});
  }
}

PromptQueue::Read PromptQueue::advance() {
  assert(complete_.empty());
  Read result;
  for (Reading& reading : reading_) {
    reading.read += reading.planned;
    reading.planned = 0;
    const SequenceId& id = reading.sequence.id;
    const int32_t total = reading.prompt_size(), processed = std::min(reading.read, total);
    // What the pass gave: the log-prob of each token that its rows precede.
    reading.scored = std::max(reading.scored, std::min(processed + 1, total));
    result.progress.push_back({.request = id.request,
                               .choice = id.choice,
                               .epoch = id.epoch,
                               .processed = processed,
                               .total = total});
  }
  while (!reading_.empty() && reading_.front().ends()) {
    Reading& reading = reading_.front();
    const SequenceId& id = reading.sequence.id;
    if (reading.draws()) {
      result.complete.push_back(id);
      result.logits_rows.push_back(reading.logits_row);
      complete_.push_back(
          LocalSequence{.id = id, .blocks = std::move(reading.blocks), .position = reading.length()});
    } else {
      result.ended.push_back(id);
    }
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
