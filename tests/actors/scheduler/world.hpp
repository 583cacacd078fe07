#pragma once

// The scheduler's classes driven as the actors drive them: four mailboxes, any of which may be next. The device is made up: what
// stands in its cache tells the whole history of a sequence, and what is drawn is a function of that alone, so a sequence that
// reads a wrong or a foreign block says something else.

#include "actors/scheduler/cancelled_ahead.hpp"
#include "actors/scheduler/ledger.hpp"
#include "actors/scheduler/prompt_queue.hpp"
#include "actors/scheduler/running_batch.hpp"
#include "kernels/attention.hpp"
#include "tests/actors/reader.hpp"

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>

namespace millrace::testing {

// ---- the made up model ----

inline uint64_t mix(uint64_t history, uint64_t value) {
  uint64_t h = (history ^ (value + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
  return h ^ (h >> 29);
}

/// What follows a history in a choice: a token, the end, or logits that are no numbers.
inline TokenId draw(uint64_t history, int32_t choice) {
  const uint64_t chance = mix(history, uint64_t(choice) + 1) >> 7;
  if (chance % 211 == 0)
    return LocalNextIds::kFailed;
  return chance % 31 == 0 ? LocalNextIds::kEnded : TokenId(chance / 31 % 4);
}

/// What a reader of a choice has in the end, if nothing disturbs it.
inline Output undisturbed(const Prompt& prompt, int32_t choice, int32_t context_length) {
  Output output;
  const int32_t n = std::min(prompt.generate.max_tokens.value_or(context_length), context_length - int32_t(prompt.token_ids.size()));
  uint64_t seen = 0, history = 0; // of all positions before; of this one
  const auto feed = [&](TokenId token) {
    history = mix(seen, uint64_t(token));
    seen = mix(seen, history);
  };
  for (const TokenId token : prompt.token_ids)
    feed(token);
  output.reason = "length";
  while (int32_t(output.ids.size()) < n) {
    const TokenId next = draw(history, choice);
    if (next < 0) {
      output.reason = next == LocalNextIds::kFailed ? "error" : "stop";
      output.error = next == LocalNextIds::kFailed ? "non_finite_logits" : "";
      break;
    }
    output.ids.push_back(next);
    feed(next);
  }
  output.logprobs.resize(output.ids.size());
  return output;
}

// ---- the actors ----

/// Throws std::logic_error where something is wrong.
class World {
public:
  struct Options {
    int32_t blocks = 16;
    bool caching = true, share_output = true;
    int32_t context_length = 1000;
    int32_t prefill_rows = 16;
    SchedulerOptions scheduler = {};
    uint64_t seed = 0;
  };

  explicit World(const Options& options)
      : options_(options), blocks_(std::make_shared<BlockManager>(options.blocks, options.caching)),
        ledger_(options.scheduler, options.context_length, std::ref(reader)), cache_(size_t(options.blocks) * kBlockSize),
        random_(options.seed) {
    start_device();
  }

  void admit(Prompt prompt, std::optional<std::chrono::milliseconds> deadline = {}) {
    tell(kDispatch, [=, this] {
      const auto end = deadline ? std::optional(now_ + *deadline) : std::nullopt;
      ledger_.admit(prompt, now_, end);
    });
  }
  void cancel(const StreamId& request) {
    tell(kDispatch, [=, this] { forget(ledger_.cancel(request, now_)); });
  }
  /// The actors of the device die with their mailboxes, and others take their place.
  void kill_device() {
    start_device();
    tell(kDispatch, [this, generation = generation_] {
      known_generation_ = generation;
      ledger_.take_back();
    });
  }
  void wait(std::chrono::milliseconds time) { now_ += time; }
  void set_caching(bool caching) { blocks_->set_caching(caching); }

  /// Delivers a message of any mailbox; false if all are empty.
  bool step() {
    std::vector<std::deque<Message>*> ready;
    for (auto& mailbox : mailboxes_)
      if (!mailbox.empty())
        ready.push_back(&mailbox);
    if (ready.empty())
      return false;
    auto& mailbox = *ready[random_() % ready.size()];
    const Message message = std::move(mailbox.front());
    mailbox.pop_front();
    const bool for_dispatch = &mailbox == &mailboxes_[kDispatch];
    message();
    if (for_dispatch)
      go_on();
    return true;
  }
  /// Until all mailboxes are empty.
  void run() {
    while (step())
      if (passes_ > max_passes)
        throw std::logic_error("so many passes bring nothing to its end");
    check_idle();
  }

  /// Nothing runs, so nothing may wait, and nobody may hold a block.
  void check_idle() const {
    const auto totals = ledger_.totals();
    check(totals.running == 0 && totals.waiting == 0, "choices wait, and nothing will ever happen");
    check(totals.queued_tokens == 0, "the queue is empty, and there are tokens in it");
    check(!ledger_.next_deadline(), "a request that has ended has a deadline");
    check(blocks_->used() == 0 && blocks_->tables() == 0, "a block was not given back");
    check(options_.caching || blocks_->cached() == 0, "something is cached, though nothing may be");
    check(queue_->idle() && batch_->empty() && samplers_.empty(), "an actor holds a sequence that has ended");
    blocks_->check_integrity();
  }

  Ledger& ledger() { return ledger_; }
  const BlockManager& blocks() const { return *blocks_; }
  int64_t passes() const { return passes_; }

  Reader reader;
  int64_t max_passes = 1'000'000;

private:
  using Message = std::function<void()>;
  enum Who { kDispatch, kPrefill, kDecode, kSampler };

  /// As ChoiceSampler. A token 3 might begin a stop string: it is told with the next one.
  struct DrawnSequence {
    Sequence sequence;
    int64_t generated = 0;
    std::vector<SampledToken> undecided = {};
  };
  struct Cell {
    uint64_t history = 0;
    bool decoded = false; // by a step of decode
  };
  struct Logits {
    std::vector<uint64_t> histories;
    std::vector<SequenceId> sequences;
  };

  static void check(bool holds, const std::string& what) {
    if (!holds)
      throw std::logic_error(what);
  }
  void tell(Who who, Message message) { mailboxes_[who].push_back(std::move(message)); }

  // -- dispatch

  void tell_device(Who who, Message message) {
    tell(who, [=, this, generation = known_generation_] {
      if (generation == generation_)
        message();
    });
  }
  void forget(const std::vector<SequenceId>& sequences) {
    for (const SequenceId& id : sequences) {
      tell_device(kDecode, [=, this] {
        if (batch_->cancel(id))
          freed();
        else
          cancelled_.add(id, 0);
      });
      tell_device(kPrefill, [=, this] {
        queue_->cancel(id);
        tell(kSampler, [=, this] { samplers_.erase(id); });
        schedule_prefill();
      });
    }
  }
  void go_on() {
    forget(ledger_.expire(now_));
    while (auto sequence = ledger_.next(now_))
      tell_device(kPrefill, [this, sequence = *std::move(sequence)] {
        queue_->push(sequence);
        schedule_prefill();
      });
    if (const auto id = ledger_.yield(now_))
      tell_device(kDecode, [this, id = *id] {
        if (batch_->yield(id))
          tell_preempted(id, true);
      });
  }

  // -- the device

  void start_device() {
    ++generation_;
    for (const Who who : {kPrefill, kDecode, kSampler})
      mailboxes_[who].clear();
    queue_.emplace(5, options_.share_output);
    batch_.emplace(options_.share_output);
    cancelled_ = {};
    samplers_.clear();
    prefill_scheduled_ = decode_scheduled_ = false;
  }

  /// Returns what the rows that want logits have seen.
  std::vector<uint64_t> forward(const std::vector<Row>& rows, bool decodes) {
    std::vector<uint64_t> histories;
    for (const Row& row : rows) {
      uint64_t seen = 0;
      for (int32_t position = 0; position < row.position; ++position) {
        const Cell& before = cell(row.blocks, position);
        check(decodes || options_.share_output || !before.decoded, "output is shared that may not be");
        seen = mix(seen, before.history);
      }
      const uint64_t history = mix(seen, uint64_t(row.token));
      cell(row.blocks, row.position) = {history, decodes};
      if (row.wants_logits)
        histories.push_back(history);
    }
    ++passes_;
    now_ += std::chrono::milliseconds(1);
    if (passes_ % 8 == 0)
      blocks_->check_integrity();
    return histories;
  }
  Cell& cell(std::span<const BlockId> blocks, int32_t position) {
    return cache_[size_t(blocks[size_t(position / kBlockSize)]) * kBlockSize + size_t(position % kBlockSize)];
  }

  // -- prefill

  void schedule_prefill() {
    if (prefill_scheduled_ || queue_->idle())
      return;
    prefill_scheduled_ = true;
    tell(kPrefill, [this] { prefill(); });
  }
  void freed() {
    tell(kPrefill, [this] { schedule_prefill(); });
  }

  void prefill() {
    prefill_scheduled_ = false;
    const auto pass = queue_->plan(*blocks_, options_.prefill_rows);
    check(!pass.rows.empty() || !batch_->empty() || in_transit_ > 0 || !mailboxes_[kDecode].empty() || queue_->idle(),
          "a prompt waits for blocks, and nobody has any");
    for (const auto& start : pass.started) {
      tell(kDispatch, [this, started = SequenceStarted{start.sequence->id, start.cached}] { ledger_.started(started, now_); });
      if (start.sequence->max_tokens > 0)
        tell(kSampler, [this, sequence = *start.sequence] {
          samplers_.try_emplace(sequence.id, DrawnSequence{sequence, int64_t(sequence.emitted_ids.size())});
        });
      copy(start);
    }
    if (pass.rows.empty())
      return;
    check(int32_t(pass.rows.size()) <= options_.prefill_rows, "a pass is larger than it may be");
    const auto histories = forward(pass.rows, false);
    check(histories.size() == pass.wanted, "logits are miscounted");
    for (const auto& piece : pass.pieces)
      score(piece, histories);
    auto read = queue_->advance();
    for (const Progress& progress : read.progress)
      tell(kDispatch, [=, this] { ledger_.progress(progress); });
    for (const SequenceId& id : read.ended)
      tell(kDispatch, [=, this] {
        Sampled end;
        end.sequence = id;
        end.reason = "length";
        ledger_.sampled(std::move(end), now_);
      });
    if (read.complete.empty())
      return schedule_prefill();
    prefill_scheduled_ = true;
    Logits logits{{}, read.complete};
    for (const size_t row : read.logits_rows)
      logits.histories.push_back(histories[row]);
    ask_sampler(std::move(logits), kPrefill, [this](const LocalNextIds& next) {
      prefill_scheduled_ = false;
      for (LocalSequence& sequence : queue_->hand_on(next, *blocks_)) {
        ++in_transit_;
        tell(kDecode, [=, this] { admit_to_batch(sequence); });
      }
      schedule_prefill();
    });
  }

  void copy(const PromptQueue::Start& start) {
    if (!start.copy)
      return;
    const std::array<BlockId, 1> from{start.copy->from}, to{start.copy->to};
    for (int32_t position = 0; position < start.copy->positions; ++position)
      cell(to, position) = cell(from, position);
  }

  void score(const PromptQueue::Piece& piece, const std::vector<uint64_t>& histories) {
    PromptLogprobs scored{.request = piece.sequence->id.request,
                          .choice = piece.sequence->id.choice,
                          .epoch = piece.sequence->id.epoch,
                          .position = piece.begin,
                          .tokens = {}};
    size_t row = piece.logits_row;
    for (int32_t position = piece.begin; position < piece.end; ++position) {
      PromptToken& token = scored.tokens.emplace_back();
      token.id = piece.sequence->prompt_ids[size_t(position)];
      if (position > 0)
        token.logprob = float(histories.at(row++) % 1024);
    }
    tell(kDispatch, [this, scored] { ledger_.scored(scored); });
  }

  // -- decode

  void admit_to_batch(const LocalSequence& sequence) {
    --in_transit_;
    if (cancelled_.find(sequence.id))
      return freed(); // the message's blocks go with it
    batch_->admit(sequence);
    schedule_decode();
  }
  void schedule_decode() {
    if (decode_scheduled_ || batch_->empty())
      return;
    decode_scheduled_ = true;
    tell(kDecode, [this] { decode(); });
  }
  void tell_preempted(const SequenceId& id, bool yielded) {
    tell(kSampler, [=, this] { samplers_.erase(id); });
    tell(kDispatch, [=, this] { ledger_.preempted({id, yielded}); });
    freed();
  }

  void decode() {
    auto step = batch_->plan(*blocks_);
    for (const SequenceId& id : step.preempted)
      tell_preempted(id, false);
    if (step.rows.empty()) {
      decode_scheduled_ = false;
      return;
    }
    ask_sampler({forward(step.rows, true), step.sequences}, kDecode, [this](const LocalNextIds& next) {
      decode_scheduled_ = false;
      const auto applied = batch_->apply(next, *blocks_);
      for (const SequenceId& id : applied.yielded)
        tell_preempted(id, true);
      if (applied.left > applied.yielded.size())
        freed();
      schedule_decode();
    });
  }

  // -- the sampler

  void ask_sampler(Logits logits, Who asks, std::function<void(const LocalNextIds&)> then) {
    tell(kSampler, [=, this] {
      LocalNextIds next;
      std::vector<Sampled> batch;
      for (size_t row = 0; row < logits.sequences.size(); ++row)
        next.ids.push_back(draw_for(logits.sequences[row], logits.histories[row], batch));
      if (!batch.empty())
        tell(kDispatch, [=, this] {
          for (const Sampled& sampled : batch)
            ledger_.sampled(sampled, now_);
        });
      tell(asks, [=] { then(next); });
    });
  }

  TokenId draw_for(const SequenceId& id, uint64_t history, std::vector<Sampled>& batch) {
    const auto found = samplers_.find(id);
    if (found == samplers_.end())
      return LocalNextIds::kEnded;
    DrawnSequence& drawn = found->second;
    TokenId next = draw(history, id.choice);
    Sampled sampled;
    sampled.sequence = id;
    if (next >= 0) {
      drawn.undecided.push_back({.sequence = id, .index = drawn.generated++, .id = next, .bytes = {}, .text = {}, .top = {}});
      if (drawn.generated == drawn.sequence.max_tokens)
        sampled.reason = "length";
    } else {
      sampled.reason = next == LocalNextIds::kFailed ? "error" : "stop";
      sampled.error = next == LocalNextIds::kFailed ? "non_finite_logits" : "";
    }
    if (next != 3 || !sampled.reason.empty())
      sampled.tokens = std::exchange(drawn.undecided, {});
    if (!sampled.reason.empty()) {
      next = next == LocalNextIds::kFailed ? next : LocalNextIds::kEnded;
      samplers_.erase(found);
    }
    if (!sampled.tokens.empty() || !sampled.reason.empty())
      batch.push_back(std::move(sampled));
    return next;
  }

  Options options_;
  std::shared_ptr<BlockManager> blocks_;
  Ledger ledger_;
  std::vector<Cell> cache_;
  std::mt19937_64 random_;
  Ledger::Time now_{std::chrono::hours(1)};
  int64_t passes_ = 0;
  int generation_ = 0, known_generation_ = 1; // of the device's actors: that lives; that dispatch speaks to
  int in_transit_ = 0;                        // sequences on their way to decode

  std::optional<PromptQueue> queue_;
  std::optional<RunningBatch> batch_;
  CancelledAhead cancelled_;
  std::map<SequenceId, DrawnSequence> samplers_;
  bool prefill_scheduled_ = false, decode_scheduled_ = false; // or waits for the sampler
  std::array<std::deque<Message>, 4> mailboxes_;
};

} // namespace millrace::testing
