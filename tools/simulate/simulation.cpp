#include "tools/simulate/simulation.hpp"

#include "actors/scheduler/cancelled_ahead.hpp"
#include "actors/scheduler/prompt_queue.hpp"
#include "actors/scheduler/running_batch.hpp"
#include "kernels/attention.hpp"
#include "tools/simulate/event_loop.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace millrace::simulate {
namespace {

using Time = EventLoop::Time;

constexpr bool kShareOutput = true; // as on a CPU: Device::one_path()
constexpr int32_t kScoredRows = 64; // nobody asks for log-probs of prompts

StreamId stream_id(uint64_t number) {
  StreamId id;
  for (size_t byte = 0; byte < 8; ++byte)
    id.bytes[byte] = id.bytes[byte + 8] = uint8_t(number >> 8 * byte);
  return id;
}

uint64_t number_of(const StreamId& id) {
  uint64_t number = 0;
  for (size_t byte = 0; byte < 8; ++byte)
    number |= uint64_t{id.bytes[byte]} << 8 * byte;
  return number;
}

[[noreturn]] void broken(const std::string& what) { throw std::logic_error("invariant broken: " + what); }

/// Those who read the events of all requests. They keep what became of each, and see that each ends once.
class Readers {
public:
  Readers(const std::vector<Arrival>& trace, const EventLoop& loop)
      : loop_(loop), trace_(trace), outcomes_(trace.size()), at_(trace.size()) {}

  void take(const Event& event) {
    std::visit([&](const auto& event) { note(event, at(event.request)); }, event);
  }
  bool had_ended(const StreamId& id, Time before) const {
    const Outcome& outcome = outcomes_[number_of(id)];
    return outcome.end != Outcome::End::open && outcome.ended < before - Time{};
  }
  /// Throws if a request has not ended.
  std::vector<Outcome> close() {
    for (size_t number = 0; number < outcomes_.size(); ++number)
      if (outcomes_[number].end == Outcome::End::open)
        broken("request " + std::to_string(number) + " never ends");
    return std::move(outcomes_);
  }

private:
  /// Where a request stands that is not over.
  struct Standing {
    Seconds last_token{0};
    int32_t read = 0;
    Outcome::End end = Outcome::End::open; // what its choice said
  };

  Outcome& at(const StreamId& id) {
    Outcome& outcome = outcomes_.at(number_of(id));
    if (outcome.end != Outcome::End::open)
      broken("request " + std::to_string(number_of(id)) + " goes on after its end");
    return outcome;
  }
  Standing& standing(const StreamId& id) { return at_[number_of(id)]; }
  Seconds since_begin() const { return loop_.now() - Time{}; }
  Seconds since_arrival(const StreamId& id) const { return since_begin() - trace_[number_of(id)].time; }

  void note(const Started& started, Outcome& outcome) {
    standing(started.request).read = started.cached_tokens;
    if (!outcome.queue_wait)
      outcome.queue_wait = since_arrival(started.request);
  }
  void note(const Progress& progress, Outcome& outcome) {
    int32_t& read = standing(progress.request).read;
    outcome.read_tokens += std::max(progress.processed - read, 0);
    read = std::max(read, progress.processed);
  }
  void note(const PromptLogprobs&, Outcome&) { broken("log-probs that nobody asked for"); }
  void note(const Token& token, Outcome& outcome) {
    Standing& standing = this->standing(token.request);
    if (token.seq != outcome.tokens || token.id != output_id(number_of(token.request), token.seq))
      broken("request " + std::to_string(number_of(token.request)) + " gets another token than it should");
    if (outcome.tokens++ == 0)
      outcome.time_to_first_token = since_arrival(token.request);
    else
      outcome.gaps.push_back(since_begin() - standing.last_token);
    standing.last_token = since_begin();
  }
  void note(const Finished& finished, Outcome&) {
    Outcome::End& end = standing(finished.request).end;
    if (end != Outcome::End::open)
      broken("a choice ends twice");
    end = finished.reason == to_string(FinishReason::length)      ? Outcome::End::finished
          : finished.reason == to_string(FinishReason::cancelled) ? Outcome::End::cancelled
          : finished.reason == to_string(FinishReason::deadline)  ? Outcome::End::expired
                                                                  : Outcome::End::failed;
  }
  void note(const Done& done, Outcome& outcome) {
    outcome.end = standing(done.request).end;
    outcome.ended = since_begin();
    if (outcome.end == Outcome::End::open)
      broken("a request is done before its choice");
    if (outcome.end == Outcome::End::finished && outcome.tokens != trace_[number_of(done.request)].output_tokens)
      broken("a request lacks tokens");
  }
  void note(const Rejected&, Outcome& outcome) {
    outcome.end = Outcome::End::refused;
    outcome.ended = since_begin();
  }

  const EventLoop& loop_;
  const std::vector<Arrival>& trace_;
  std::vector<Outcome> outcomes_;
  std::vector<Standing> at_;
};

/// Does what the four actors do around the policy; each function is one of actors/{dispatch,prefill,decode,sampler}.cpp.
class World {
public:
  World(const std::vector<Arrival>& trace, const SimulationOptions& options, int32_t context_length)
      : trace_(trace), options_(options), readers_(trace, loop_),
        ledger_(options.scheduler, context_length, [this](const Event& event) { readers_.take(event); }),
        budget_(options.scheduler.prefill_chunk, options.scheduler.prefill_stretch),
        blocks_(std::make_shared<BlockManager>(options.kv_blocks, options.prefix_cache)) {}

  Result run();

private:
  // ---- dispatch ----
  void arrive(uint64_t number);
  template <class Act> void tell_dispatch(Act act) {
    dispatch_.send([this, act = std::move(act)]() mutable {
      act();
      go_on();
    });
  }
  void go_on();
  void forget(const std::vector<SequenceId>& sequences);

  // ---- prefill ----
  void tell_prefill_of_free_blocks() {
    prefill_.send([this] { schedule_prefill(); });
  }
  void schedule_prefill();
  void prefill_step();
  void end_of_prefill_pass(int32_t rows, int32_t wanted, double seconds, Time planned);
  void hand_on(const LocalNextIds& next);
  void cancel_in_prefill(const CancelSequence& cancel);

  // ---- decode ----
  void admit(LocalSequence sequence);
  void schedule_decode();
  void decode_step();
  void apply(const LocalNextIds& next);
  void cancel_in_decode(const CancelSequence& cancel);
  void yield(const SequenceId& id);
  void tell_preempted(const SequenceId& id, bool yielded);
  void note_size() { budget_.set_decoding(int32_t(batch_.size())); }

  // ---- sampler ----
  struct Choice {
    int64_t generated, most;
  };
  void begin_choice(const Sequence& sequence);
  void cancel_in_sampler(const SequenceId& id);
  /// Draws for these rows, and hands the ids to the actor that has asked.
  void draw(std::vector<SequenceId> sequences, Mailbox& asker, void (World::*then)(const LocalNextIds&));

  bool idle() const;
  void check_idle();

  const std::vector<Arrival>& trace_;
  const SimulationOptions& options_;
  EventLoop loop_;
  VirtualDevice device_{loop_};
  Mailbox dispatch_{loop_}, prefill_{loop_}, decode_{loop_}, sampler_{loop_};
  Readers readers_;
  Ledger ledger_;
  StepBudget budget_;
  std::shared_ptr<BlockManager> blocks_;
  PromptQueue queue_{kScoredRows, kShareOutput};
  RunningBatch batch_{kShareOutput};
  CancelledAhead cancelled_;
  std::map<SequenceId, Choice> choices_; // of the sampler
  std::optional<Time> alarm_;
  Time decoded_{}; // when the last decode pass ended
  bool prefill_in_flight_ = false, decode_in_flight_ = false;
  int64_t wasted_steps_ = 0, idle_checks_ = 0;
};

// ---- dispatch ----

void World::arrive(uint64_t number) {
  const Arrival& arrival = trace_[number];
  const StreamId id = stream_id(number);
  tell_dispatch([this, &arrival, id, number] {
    Prompt prompt;
    prompt.generate.request = id;
    prompt.generate.max_tokens = arrival.output_tokens;
    prompt.generate.ignore_eos = true;
    prompt.generate.sampling.seed = number;
    prompt.generate.priority = arrival.priority;
    prompt.generate.tenant = arrival.tenant;
    prompt.token_ids = prompt_ids(arrival, number);
    const Time now = loop_.now();
    ledger_.admit(std::move(prompt), now, arrival.deadline ? std::optional(now + *arrival.deadline) : std::nullopt);
  });
  if (arrival.cancel)
    loop_.at(loop_.now() + *arrival.cancel, [this, id] {
      tell_dispatch([this, id] { forget(ledger_.cancel(id, loop_.now())); });
    });
}

void World::go_on() {
  const Time now = loop_.now();
  forget(ledger_.expire(now));
  if (const auto next = ledger_.next_deadline(); next && (!alarm_ || *next < *alarm_)) {
    alarm_ = next;
    loop_.at(*next, [this] { tell_dispatch([this] { alarm_.reset(); }); });
  }
  while (auto sequence = ledger_.next(now))
    prefill_.send([this, sequence = *std::move(sequence)]() mutable {
      queue_.push(std::move(sequence));
      schedule_prefill();
    });
  if (const auto id = ledger_.yield(now))
    decode_.send([this, id = *id] { yield(id); });
}

void World::forget(const std::vector<SequenceId>& sequences) {
  for (const SequenceId& id : sequences) {
    const CancelSequence cancel{id, device_.passes()};
    decode_.send([this, cancel] { cancel_in_decode(cancel); });
    prefill_.send([this, cancel] { cancel_in_prefill(cancel); });
  }
}

// ---- prefill ----

void World::schedule_prefill() {
  if (prefill_in_flight_ || queue_.idle())
    return;
  prefill_in_flight_ = true;
  prefill_.send([this] { prefill_step(); });
}

void World::prefill_step() {
  prefill_in_flight_ = false;
  const PromptQueue::Pass pass = queue_.plan(*blocks_, budget_.prefill_rows());
  for (const PromptQueue::Start& start : pass.started) {
    tell_dispatch([this, started = SequenceStarted{start.sequence->id, start.cached}] {
      ledger_.started(started, loop_.now());
    });
    sampler_.send([this, sequence = *start.sequence] { begin_choice(sequence); });
  }
  if (pass.rows.empty())
    return;
  int64_t visible = 0;
  for (const Row& row : pass.rows)
    visible += row.position + 1;
  const auto rows = int32_t(pass.rows.size()), wanted = int32_t(pass.wanted);
  const double seconds = options_.cost.prefill.seconds(rows, visible);
  prefill_.block();
  device_.forward(seconds, [=, this, planned = loop_.now()] {
    prefill_.unblock();
    end_of_prefill_pass(rows, wanted, seconds, planned);
  });
}

void World::end_of_prefill_pass(int32_t rows, int32_t wanted, double seconds, Time planned) {
  budget_.note_prefill(rows, wanted, seconds);
  PromptQueue::Read read = queue_.advance();
  for (const Progress& progress : read.progress) {
    wasted_steps_ += readers_.had_ended(progress.request, planned);
    tell_dispatch([this, progress] { ledger_.progress(progress); });
  }
  if (read.complete.empty())
    return schedule_prefill();
  prefill_in_flight_ = true;
  draw(std::move(read.complete), prefill_, &World::hand_on);
}

void World::hand_on(const LocalNextIds& next) {
  prefill_in_flight_ = false;
  for (LocalSequence& sequence : queue_.hand_on(next, *blocks_))
    decode_.send([this, sequence = std::move(sequence)]() mutable { admit(std::move(sequence)); });
  schedule_prefill();
}

void World::cancel_in_prefill(const CancelSequence& cancel) {
  if (queue_.cancel(cancel.sequence))
    budget_.note_freed(device_.passes() - cancel.pass);
  cancel_in_sampler(cancel.sequence);
  schedule_prefill();
}

// ---- decode ----

void World::admit(LocalSequence sequence) {
  if (const auto pass = cancelled_.find(sequence.id)) {
    sequence.blocks.reset();
    budget_.note_freed(device_.passes() - *pass);
    return tell_prefill_of_free_blocks();
  }
  batch_.admit(std::move(sequence));
  note_size();
  schedule_decode();
}

void World::schedule_decode() {
  if (decode_in_flight_ || batch_.empty())
    return;
  decode_in_flight_ = true;
  decode_.send([this] { decode_step(); });
}

void World::decode_step() {
  RunningBatch::Step step = batch_.plan(*blocks_);
  for (const SequenceId& id : step.preempted)
    tell_preempted(id, false);
  note_size();
  if (step.rows.empty()) {
    decode_in_flight_ = false;
    return;
  }
  wasted_steps_ += std::ranges::count_if(
      step.sequences, [&](const SequenceId& id) { return readers_.had_ended(id.request, loop_.now()); });
  const auto rows = int32_t(step.rows.size());
  const double seconds = options_.cost.decode.seconds(rows, step.visible);
  decode_.block();
  device_.forward(seconds, [=, this, sequences = std::move(step.sequences), visible = step.visible]() mutable {
    decode_.unblock();
    decoded_ = loop_.now();
    budget_.note_decode(rows, visible, seconds);
    draw(std::move(sequences), decode_, &World::apply);
  });
}

void World::apply(const LocalNextIds& next) {
  decode_in_flight_ = false;
  budget_.note_loop(Seconds(loop_.now() - decoded_).count());
  const RunningBatch::Applied applied = batch_.apply(next, *blocks_);
  note_size();
  for (const SequenceId& id : applied.yielded)
    tell_preempted(id, true);
  if (applied.left > applied.yielded.size())
    tell_prefill_of_free_blocks();
  schedule_decode();
}

void World::cancel_in_decode(const CancelSequence& cancel) {
  if (!batch_.cancel(cancel.sequence))
    return cancelled_.add(cancel.sequence, cancel.pass);
  note_size();
  budget_.note_freed(device_.passes() - cancel.pass);
  tell_prefill_of_free_blocks();
}

void World::yield(const SequenceId& id) {
  if (!batch_.yield(id))
    return;
  note_size();
  tell_preempted(id, true);
}

void World::tell_preempted(const SequenceId& id, bool yielded) {
  cancel_in_sampler(id);
  tell_dispatch([this, preempted = SequencePreempted{id, yielded}] { ledger_.preempted(preempted); });
  tell_prefill_of_free_blocks();
}

// ---- sampler ----

void World::begin_choice(const Sequence& sequence) {
  choices_.try_emplace(sequence.id, Choice{int64_t(sequence.emitted_ids.size()), sequence.max_tokens});
}

void World::cancel_in_sampler(const SequenceId& id) {
  sampler_.send([this, id] { choices_.erase(id); });
}

void World::draw(std::vector<SequenceId> sequences, Mailbox& asker, void (World::*then)(const LocalNextIds&)) {
  loop_.after(options_.cost.loop, [=, this, &asker, sequences = std::move(sequences)] {
    sampler_.send([=, this, &asker] {
      LocalNextIds next;
      SampledBatch batch;
      for (const SequenceId& id : sequences) {
        const auto choice = choices_.find(id);
        if (choice == choices_.end()) { // cancelled meanwhile
          next.ids.push_back(LocalNextIds::kEnded);
          continue;
        }
        Sampled& sampled = batch.sequences.emplace_back();
        sampled.sequence = id;
        SampledToken& token = sampled.tokens.emplace_back();
        token.sequence = id;
        token.index = choice->second.generated++;
        token.id = output_id(number_of(id.request), token.index);
        const bool ends = choice->second.generated == choice->second.most;
        next.ids.push_back(ends ? LocalNextIds::kEnded : token.id);
        if (ends) {
          sampled.reason = to_string(FinishReason::length);
          choices_.erase(choice);
        }
      }
      tell_dispatch([this, batch] {
        for (const Sampled& sampled : batch.sequences)
          ledger_.sampled(sampled, loop_.now());
      });
      asker.send([=, this] { (this->*then)(next); });
    });
  });
}

// ---- the whole ----

bool World::idle() const {
  const Ledger::Totals totals = ledger_.totals();
  return totals.running == 0 && totals.waiting == 0 && device_.idle() && !prefill_in_flight_ && !decode_in_flight_ &&
         dispatch_.empty() && prefill_.empty() && decode_.empty() && sampler_.empty();
}

void World::check_idle() {
  blocks_->check_integrity();
  if (blocks_->tables() != 0 || blocks_->used() != 0)
    broken(std::to_string(blocks_->tables()) + " tables hold " + std::to_string(blocks_->used()) +
           " blocks while nothing runs");
  if (ledger_.totals().queued_tokens != 0)
    broken("the book counts " + std::to_string(ledger_.totals().queued_tokens) + " tokens of requests that are over");
  if (!queue_.idle() || !batch_.empty() || !choices_.empty())
    broken("a sequence is left while nothing runs");
  ++idle_checks_;
}

Result World::run() {
  for (uint64_t number = 0; number < trace_.size(); ++number)
    loop_.at(Time{} + trace_[number].time, [this, number] { arrive(number); });
  loop_.run([this] {
    if (idle())
      check_idle();
  });
  Result result;
  result.outcomes = readers_.close();
  check_idle();
  for (const Outcome& outcome : result.outcomes)
    result.duration = std::max(result.duration, outcome.ended);
  result.totals = ledger_.totals();
  result.steps = budget_.totals();
  result.cache = blocks_->counters();
  result.busy = Seconds(device_.busy_seconds());
  result.wasted_steps = wasted_steps_;
  result.idle_checks = idle_checks_;
  return result;
}

} // namespace

Result simulate(const std::vector<Arrival>& trace, const SimulationOptions& options) {
  const auto pool = int64_t{options.kv_blocks} * kBlockSize;
  const auto context_length = int32_t(std::min(int64_t{options.context_length}, pool));
  for (const Arrival& arrival : trace)
    if (arrival.prompt_tokens < 1 || arrival.output_tokens < 1 ||
        arrival.prompt_tokens + int64_t{arrival.output_tokens} > context_length)
      throw std::invalid_argument("a prompt of " + std::to_string(arrival.prompt_tokens) + " tokens and " +
                                  std::to_string(arrival.output_tokens) + " after it are more than the context's " +
                                  std::to_string(context_length));
  return World(trace, options, context_length).run();
}

} // namespace millrace::simulate
