#include "actors/scheduler/ledger.hpp"

#include "actors/scheduler/make_sequence.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {
namespace {

/// How many cancelled requests are remembered. Only those matter of which a sampler's last words are still in a mailbox.
constexpr size_t kMaxCancelled = 1024;

double milliseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

} // namespace

Ledger::Ledger(const PipelineOptions& options, int32_t context_length, EventSink sink)
    : admission_(options.max_queued_tokens, options.max_queued_requests), max_running_(options.max_batch_size),
      context_length_(context_length), sink_(std::move(sink)) {}

// ---- in ----

void Ledger::admit(Prompt prompt, Time now) {
  const StreamId id = prompt.generate.request;
  const auto length = int32_t(prompt.token_ids.size());
  const int32_t n = prompt.generate.n;
  assert(length > 0 && length < context_length_ && !requests_.contains(id));

  if (device_lost_)
    return refuse(id, Error::device_lost, "the device died too often and has been given up");
  if (!admission_.admits(int64_t(length) * n))
    return refuse(id, Error::busy,
                  std::to_string(admission_.requests()) + " requests with " + std::to_string(admission_.size()) +
                      " prompt tokens are waiting");

  open(std::move(prompt), now);
  for (int32_t choice = 0; choice < n; ++choice)
    waiting_.push_back({id, choice});
}

Ledger::Request& Ledger::open(Prompt prompt, Time now) {
  const StreamId id = prompt.generate.request;
  assert(!requests_.contains(id));
  Request& request = requests_[id];
  request.number = next_number_++;
  request.admitted = now;
  request.choices.resize(size_t(prompt.generate.n));
  for (Choice& choice : request.choices)
    choice.epoch = first_epoch(id);
  request.prompt = std::move(prompt);
  admission_.add_request();
  admission_.add_size(request.length() * int64_t(request.choices.size()));
  return request;
}

void Ledger::resume(LocalResumption resumption, Time now) {
  Request& request = open(std::move(resumption.prompt), now);
  const StreamId id = request.prompt.generate.request;
  request.scored = resumption.scored;
  std::vector<Sampled> ends;
  for (int32_t index = 0; LocalResumption::Choice& given : resumption.choices) {
    Choice& choice = request.choices.at(size_t(index));
    choice.emitted_ids = std::move(given.emitted_ids);
    choice.epoch = std::max(choice.epoch, given.epoch);
    if (given.finished)
      set_state(request, choice, Choice::finished);
    else if (given.end)
      ends.push_back(*std::move(given.end));
    else
      waiting_.push_back({id, index});
    ++index;
  }
  if (close_if_finished(request, now))
    return;
  for (Sampled& end : ends) // the last one may close the request
    finish(request, request.choices.at(size_t(end.sequence.choice)), std::move(end), now);
  if (device_lost_)
    resumption.error = to_string(Error::device_lost);
  if (!resumption.error.empty() && requests_.contains(id))
    finish_all(id, FinishReason::error, resumption.error, now);
}

void Ledger::refuse(const Rejected& rejected) {
  ++totals_.rejected;
  sink_(rejected);
}

void Ledger::refuse(const StreamId& request, Error error, std::string message) {
  Rejected rejected{.request = request, .error = std::string(to_string(error)), .field = {}, .message = std::move(message)};
  if (error == Error::busy)
    rejected.retry_after_ms = int32_t(admission_.retry_after().count());
  refuse(rejected);
}

// ---- to the device ----

std::optional<Sequence> Ledger::next() {
  if (waiting_.empty() || in_device_ >= max_running_)
    return std::nullopt;
  const auto [id, index] = waiting_.front();
  waiting_.pop_front();
  Request& request = requests_.at(id);
  Choice& choice = request.choices[index];
  set_state(request, choice, Choice::sent);

  Sequence sequence =
      make_sequence(request.prompt, {id, index, choice.epoch}, choice.emitted_ids, context_length_);
  sequence.scored = request.scored;
  return sequence;
}

void Ledger::set_state(Request& request, Choice& choice, Choice::State state) {
  const auto waits = [](Choice::State state) { return state == Choice::waiting || state == Choice::sent; };
  const auto in_device = [](Choice::State state) { return state == Choice::sent || state == Choice::running; };
  if (waits(choice.state) && !waits(state))
    admission_.remove_size(request.length());
  if (!waits(choice.state) && waits(state))
    admission_.add_size(request.length());
  in_device_ += in_device(state) - in_device(choice.state);
  choice.state = state;
}

// ---- from the device ----

Ledger::Choice* Ledger::find(const SequenceId& id) {
  const auto request = requests_.find(id.request);
  if (request != requests_.end()) {
    Choice& choice = request->second.choices.at(id.choice);
    const bool in_device = choice.state == Choice::sent || choice.state == Choice::running;
    if (in_device && choice.epoch == id.epoch)
      return &choice;
  }
  ++stale_;
  return nullptr;
}

void Ledger::started(const SequenceId& id, Time now) {
  Choice* choice = find(id);
  if (!choice)
    return;
  Request& request = requests_.at(id.request);
  set_state(request, *choice, Choice::running);
  if (!request.began) {
    request.began = now;
    admission_.remove_request();
    admission_.note_wait(now - request.admitted);
  }
  sink_(Started{.request = id.request,
                .choice = id.choice,
                .epoch = id.epoch,
                .prompt_tokens = int32_t(request.length()),
                .cached_tokens = 0,
                .seed = request.prompt.generate.sampling.seed.value_or(0)});
}

void Ledger::progress(const Progress& progress) {
  Choice* choice = find({progress.request, progress.choice, progress.epoch});
  if (!choice)
    return;
  totals_.prompt_tokens += progress.processed - choice->read;
  choice->read = progress.processed;
  sink_(progress);
}

void Ledger::scored(PromptLogprobs piece) {
  if (!find({piece.request, piece.choice, piece.epoch}))
    return;
  Request& request = requests_.at(piece.request);
  assert(piece.position == request.scored);
  request.scored += int32_t(piece.tokens.size());
  sink_(std::move(piece));
}

void Ledger::sampled(Sampled sampled, Time now) {
  const SequenceId id = sampled.sequence;
  Choice* choice = find(id);
  if (!choice)
    return;
  Request& request = requests_.at(id.request);
  for (SampledToken& token : sampled.tokens) {
    assert(token.index == int64_t(choice->emitted_ids.size()));
    if (!request.first_token)
      request.first_token = now;
    choice->emitted_ids.push_back(token.id);
    ++totals_.generated_tokens;
    emit(id, std::move(token));
  }
  if (sampled.reason.empty())
    return;
  finish(request, *choice, std::move(sampled), now);
}

void Ledger::emit(const SequenceId& id, SampledToken token) {
  sink_(Token{.request = id.request,
              .choice = id.choice,
              .epoch = id.epoch,
              .seq = token.index,
              .id = token.id,
              .bytes = std::move(token.bytes),
              .text = std::move(token.text),
              .logprob = token.logprob,
              .top = std::move(token.top)});
}

// ---- ends ----

void Ledger::finish(Request& request, Choice& choice, Sampled end, Time now) {
  set_state(request, choice, Choice::finished);
  sink_(Finished{.request = end.sequence.request,
                 .choice = end.sequence.choice,
                 .epoch = choice.epoch,
                 .seq = int64_t(choice.emitted_ids.size()),
                 .reason = std::move(end.reason),
                 .text = std::move(end.text),
                 .error = std::move(end.error)});
  close_if_finished(request, now);
}

bool Ledger::close_if_finished(Request& request, Time now) {
  const auto unfinished = [](const Choice& choice) { return choice.state != Choice::finished; };
  if (std::ranges::any_of(request.choices, unfinished))
    return false;
  const Time began = request.began.value_or(now);
  const Time first_token = request.first_token.value_or(now);
  Done done{.request = request.prompt.generate.request,
            .prompt_tokens = int32_t(request.length()),
            .generated_tokens = 0,
            .queue_ms = milliseconds(began - request.admitted),
            .prefill_ms = milliseconds(first_token - began),
            .decode_ms = milliseconds(now - first_token)};
  for (const Choice& choice : request.choices)
    done.generated_tokens += int32_t(choice.emitted_ids.size());
  if (!request.began)
    admission_.remove_request();
  ++totals_.finished;
  requests_.erase(done.request);
  sink_(done);
  return true;
}

void Ledger::finish_all(const StreamId& id, FinishReason reason, std::string_view error, Time now) {
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.request == id; });
  Request& request = requests_.at(id);
  const auto n = int32_t(request.choices.size());
  int32_t left = int32_t(std::ranges::count_if(
      request.choices, [](const Choice& choice) { return choice.state != Choice::finished; }));
  for (int32_t index = 0; index < n && left > 0; ++index) { // the last finish() closes the request
    Choice& choice = request.choices[index];
    if (choice.state == Choice::finished)
      continue;
    --left;
    Sampled end;
    end.sequence = {id, index, choice.epoch};
    end.reason = to_string(reason);
    end.error = error;
    finish(request, choice, std::move(end), now);
  }
}

std::vector<SequenceId> Ledger::cancel(const StreamId& id, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end())
    return {};
  std::vector<SequenceId> in_device;
  for (int32_t index = 0; const Choice& choice : found->second.choices) {
    if (choice.state == Choice::sent || choice.state == Choice::running)
      in_device.push_back({id, index, choice.epoch});
    ++index;
  }
  remember_cancelled(in_device);
  finish_all(id, FinishReason::cancelled, {}, now);
  return in_device;
}

void Ledger::remember_cancelled(std::span<const SequenceId> sequences) {
  if (sequences.empty())
    return;
  const auto last = std::ranges::max_element(sequences, {}, &SequenceId::epoch);
  cancelled_.push_back({last->request, last->epoch});
  if (cancelled_.size() > kMaxCancelled)
    cancelled_.pop_front();
}

// A client may use the id of a cancelled request again while a sampler's last words about it are on their way.
uint32_t Ledger::first_epoch(const StreamId& id) const {
  for (auto entry = cancelled_.rbegin(); entry != cancelled_.rend(); ++entry)
    if (entry->first == id)
      return entry->second + 1;
  return 0;
}

void Ledger::take_back() {
  std::vector<std::pair<uint64_t, Waiting>> back;
  for (auto& [id, request] : requests_) {
    for (int32_t index = 0; Choice& choice : request.choices) {
      if (choice.state == Choice::sent || choice.state == Choice::running) {
        set_state(request, choice, Choice::waiting);
        ++choice.epoch;
        choice.read = 0;
        back.push_back({request.number, {id, index}});
      }
      ++index;
    }
  }
  // Within a request by choice, since that is the order in which they were found.
  std::ranges::stable_sort(back, {}, [](const auto& entry) { return entry.first; });
  for (auto entry = back.rbegin(); entry != back.rend(); ++entry)
    waiting_.push_front(entry->second);
}

void Ledger::lose_device(Time now) {
  device_lost_ = true;
  while (!requests_.empty())
    finish_all(StreamId(requests_.begin()->first), FinishReason::error, to_string(Error::device_lost), now);
}

PipelineStats Ledger::stats() const {
  PipelineStats stats = totals_;
  stats.running = in_device_;
  stats.waiting = int32_t(waiting_.size());
  stats.queued_tokens = admission_.size();
  return stats;
}

} // namespace millrace
