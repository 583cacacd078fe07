#include "actors/scheduler/prompt_queue.hpp"

#include "kernels/attention.hpp"

#include <algorithm>
#include <cassert>
#include <ranges>

namespace millrace {
namespace {

/// So many sequences that read ahead may pass one that waits for blocks: else their endless stream would take all there are.
constexpr int32_t kMostPassed = 16;

} // namespace

void PromptQueue::push(Sequence sequence) {
  const auto stays = [](const Reading& reading) { return reading.sequence.ahead || reading.passed >= kMostPassed; };
  const auto place =
      sequence.ahead ? std::find_if(waiting_.rbegin(), waiting_.rend(), stays).base() : waiting_.end();
  for (auto reading = place; reading != waiting_.end(); ++reading)
    ++reading->passed;
  waiting_.emplace(place, std::move(sequence));
}

bool PromptQueue::cancel(const SequenceId& id) {
  const auto is_it = [&](const Reading& reading) { return reading.sequence.id == id; };
  std::erase_if(in_pass_, [&](const Reading* reading) { return is_it(*reading); });
  size_t erased = std::erase_if(waiting_, is_it) + std::erase_if(reading_, is_it);
  for (auto& sequence : complete_)
    if (sequence && sequence->id == id) {
      sequence.reset();
      ++erased;
    }
  return erased > 0;
}

// ---- one prompt ----

PromptQueue::Reading::Reading(Sequence given)
    : sequence(std::move(given)), tokens(sequence.prompt_ids),
      scored(sequence.prompt_logprobs ? std::min(sequence.scored, prompt_size()) : prompt_size()) {
  tokens.insert(tokens.end(), sequence.emitted_ids.begin(), sequence.emitted_ids.end());
}

int32_t PromptQueue::Reading::first_scored_row() const {
  return std::max(read, std::max(scored, 1) - 1);
}

// ---- a pass ----

PromptQueue::Pass PromptQueue::plan(BlockManager& blocks, int32_t budget) {
  assert(budget > 0 && in_pass_.empty());
  Pass pass;
  start(blocks, pass);
  if (reading_.empty())
    return pass;

  std::vector<Reading*> ahead, others;
  for (Reading& reading : reading_)
    (reading.sequence.ahead ? ahead : others).push_back(&reading);
  const int32_t kept = others.empty() ? 0 : std::max(budget / 16, 1);
  add_kind(ahead, pass, std::max(budget - kept, 1));
  add_kind(others, pass, budget);
  return pass;
}

void PromptQueue::add_kind(const std::vector<Reading*>& readings, Pass& pass, int32_t budget) {
  const int32_t begin = int32_t(pass.rows.size()), room = budget - begin;
  if (readings.empty() || room <= 0)
    return;
  std::vector<Reading*> rest(readings.begin() + 1, readings.end());
  int64_t rest_left = 0;
  for (const Reading* reading : rest)
    rest_left += reading->left();
  std::ranges::stable_sort(rest, {}, &Reading::left);
  add_rows(*readings.front(), pass, begin + int32_t(std::max<int64_t>({room - rest_left, room / 4, 1})));
  for (Reading* reading : rest)
    add_rows(*reading, pass, budget);
}

void PromptQueue::start(BlockManager& blocks, Pass& pass) {
  for (auto reading = waiting_.begin(); reading != waiting_.end();) {
    if (is_worth_waiting(*reading, blocks)) {
      ++reading;
      continue;
    }
    // Each sequence that runs may need one more block soon: to start another only to preempt it helps nobody.
    reading->blocks = blocks.allocate({.positions = reading->length(),
                                       .tokens = cacheable(*reading),
                                       .salt = reading->sequence.salt,
                                       .spare = blocks.tables()});
    if (!reading->blocks)
      return; // nor may those behind it take what it waits for
    reading->read = reading->blocks->cached();
    reading_.push_back(std::move(*reading));
    reading = waiting_.erase(reading);
    const Reading& started = reading_.back();
    pass.started.push_back({.sequence = &started.sequence, .cached = started.read, .copy = started.blocks->copy()});
  }
}

std::span<const TokenId> PromptQueue::to_publish(std::span<const TokenId> tokens, int32_t prompt_size) const {
  return share_output_ ? tokens : tokens.first(size_t(prompt_size));
}

/// Tokens that may come from the cache: at least the last one is fed, and those whose rows give log-probs.
std::span<const TokenId> PromptQueue::cacheable(const Reading& reading) const {
  const std::span<const TokenId> tokens = reading.tokens;
  const int32_t last = (share_output_ ? reading.length() : std::min(reading.prompt_size() + 1, reading.length())) - 1;
  const int32_t first_scored = reading.first_scored_row();
  return tokens.first(size_t(first_scored < reading.prompt_size() - 1 ? std::min(first_scored, last) : last));
}

/// Whether what is being read now will be at least half of what this one has to read, and soon: a short prompt does not wait for
/// the end of a long one for the sake of a few blocks.
bool PromptQueue::is_worth_waiting(const Reading& reading, const BlockManager& blocks) const {
  if (reading_.empty() || !blocks.caching())
    return false;
  const auto wanted = cacheable(reading);
  const int32_t cached = blocks.lookup(wanted, reading.sequence.salt);
  return std::ranges::any_of(reading_, [&](const Reading& other) {
    if (other.sequence.salt != reading.sequence.salt || !other.draws())
      return false;
    const auto differs = std::ranges::mismatch(wanted, to_publish(other.tokens, other.prompt_size())).in1 - wanted.begin();
    const int32_t saved = int32_t(differs) / kBlockSize * kBlockSize - cached;
    return saved >= std::max(kBlockSize, (reading.length() - cached) / 2) && other.left() <= 2 * saved;
  });
}

int32_t PromptQueue::share(const Reading& reading, const Pass& pass, int32_t budget) const {
  const int32_t rows = std::clamp(budget - int32_t(pass.rows.size()), 0, reading.left());
  const int32_t first = reading.first_scored_row();
  const int32_t left = std::max(scored_budget_ - int32_t(pass.wanted), 0);
  return reading.prompt_size() - 1 - first > left ? std::min(rows, first - reading.read + left) : rows;
}

void PromptQueue::add_rows(Reading& reading, Pass& pass, int32_t budget) {
  reading.planned = share(reading, pass, budget);
  if (reading.planned == 0)
    return;
  in_pass_.push_back(&reading);
  const int32_t end = reading.read + reading.planned;
  const int32_t first_scored = reading.first_scored_row(), end_scored = std::min(end, reading.prompt_size() - 1);
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
    pass.rows.push_back({.token = reading.tokens[size_t(position)],
                         .position = position,
                         .blocks = reading.blocks->blocks(),
                         .wants_logits = scores || draws});
  }
}

PromptQueue::Read PromptQueue::advance() {
  assert(complete_.empty());
  Read result;
  for (Reading* reading : in_pass_) {
    reading->read += reading->planned;
    reading->planned = 0;
    const SequenceId& id = reading->sequence.id;
    const int32_t total = reading->prompt_size(), processed = std::min(reading->read, total);
    // What the pass gave: the log-prob of each token that its rows precede.
    reading->scored = std::max(reading->scored, std::min(processed + 1, total));
    result.progress.push_back(
        {.request = id.request, .choice = id.choice, .epoch = id.epoch, .processed = processed, .total = total});
    if (reading->left() > 0)
      continue;
    if (reading->draws()) {
      result.complete.push_back(id);
      result.logits_rows.push_back(reading->logits_row);
      complete_.push_back(LocalSequence{.id = id,
                                        .blocks = std::move(reading->blocks),
                                        .tokens = std::move(reading->tokens),
                                        .prompt_size = total,
                                        .rank = reading->sequence.rank});
    } else {
      result.ended.push_back(id);
    }
    reading_.remove_if([&](const Reading& other) { return &other == reading; });
  }
  in_pass_.clear();
  return result;
}

std::vector<LocalSequence> PromptQueue::hand_on(const LocalNextIds& next, BlockManager& blocks) {
  assert(next.ids.size() == complete_.size());
  std::vector<LocalSequence> sequences;
  for (size_t i = 0; i < complete_.size(); ++i) {
    if (!complete_[i] || next.ids[i] == LocalNextIds::kFailed)
      continue;
    LocalSequence& sequence = *complete_[i];
    blocks.publish(*sequence.blocks, to_publish(sequence.tokens, sequence.prompt_size));
    if (next.ids[i] == LocalNextIds::kEnded)
      continue;
    sequence.tokens.push_back(next.ids[i]);
    sequences.push_back(std::move(sequence));
  }
  complete_.clear();
  return sequences;
}

} // namespace millrace
