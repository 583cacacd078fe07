#include "actors/scheduler/ledger.hpp"

#include "actors/scheduler/make_sequence.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <tuple>
#include <utility>

namespace millrace {
namespace {

/// How many cancelled requests are remembered. Only those matter of which a sampler's last words are still in a mailbox.
constexpr size_t kMaxCancelled = 1024;
/// Above any n that is admitted: ranks of two requests never mix.
constexpr uint64_t kMaxChoices = 1024;
/// What a generated token counts, where one of a prompt counts 1: as in the paper that FairQueue names.
constexpr int64_t kOutputWeight = 2;

double milliseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

} // namespace

Ledger::Ledger(const SchedulerOptions& options, int32_t context_length, EventSink sink)
    : options_(options), admission_(options.max_queued_tokens, options.max_queued_requests),
      context_length_(context_length), sink_(std::move(sink)), waiting_(options.ageing) {}

// ---- in ----

void Ledger::admit(Prompt prompt, Time now, std::optional<Time> deadline) {
  const StreamId id = prompt.generate.request;
  const auto length = int32_t(prompt.token_ids.size());
  const int32_t n = prompt.generate.n;
  assert(length > 0 && length < context_length_ && !requests_.contains(id));

  if (device_lost_)
    return refuse(id, Error::device_lost, "the device died too often and has been given up");
  if (std::string why = why_busy(prompt.generate, int64_t(length) * n, now, deadline); !why.empty())
    return refuse(id, Error::busy, std::move(why));

  const Request& request = open(std::move(prompt), now, deadline);
  for (int32_t choice = 0; choice < n; ++choice)
    wait(request, choice);
}

std::string Ledger::why_busy(const Generate& generate, int64_t tokens, Time now, std::optional<Time> deadline) const {
  using std::chrono::ceil, std::chrono::seconds;
  if (!admission_.admits(tokens))
    return std::to_string(admission_.requests()) + " requests with " + std::to_string(admission_.size()) +
           " prompt tokens are waiting";
  if (has_share(generate.tenant, tokens)) {
    const Held& held = held_.at(generate.tenant);
    return "the tenant has " + std::to_string(held.requests) + " requests with " + std::to_string(held.tokens) +
           " prompt tokens waiting, which is its share of the queue";
  }
  const auto wait = wait_of(generate, tokens);
  if (!wait)
    return {};
  const std::string about = "it would wait for about " + std::to_string(ceil<seconds>(*wait).count()) + " s";
  if (options_.max_queue_wait.count() > 0 && *wait > options_.max_queue_wait)
    return about + ", at most " + std::to_string(options_.max_queue_wait.count()) + " ms are allowed";
  // A wait that leaves too little time to run serves nobody, and takes the device from those that would end in time.
  if (deadline && *wait > (*deadline - now) / 2)
    return about + ", more than half of the time to its deadline";
  return {};
}

// Its share is of the room that is left and what it has: several greedy tenants leave room, too, and one alone gets max_tenant_share
// of all (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
bool Ledger::has_share(const std::string& tenant, int64_t tokens) const {
  const auto held = held_.find(tenant);
  if (tenant.empty() || held == held_.end())
    return false;
  const double share = options_.max_tenant_share;
  const auto is_over = [&](int64_t own, int64_t added, int64_t all, int64_t most) {
    return double(own + added) * (1 - share) > share * double(most - all - added);
  };
  return is_over(held->second.tokens, tokens, admission_.size(), options_.max_queued_tokens) ||
         is_over(held->second.requests, 1, admission_.requests(), options_.max_queued_requests);
}

std::optional<std::chrono::nanoseconds> Ledger::wait_of(const Generate& generate, int64_t tokens) const {
  int64_t before = 0; // as urgent, or more
  for (const auto& [priority, held] : held_tokens_)
    before += priority <= generate.priority ? held : 0;
  // Tenants are served in turn, so a tenant with little in the queue does not wait for all of it.
  const auto held = held_.find(generate.tenant);
  const int64_t own = tokens + (held == held_.end() ? 0 : held->second.tokens);
  const auto tenants = int64_t(waiting_.active_tenants());
  return queue_wait_.until(std::min(before + tokens, own * std::max<int64_t>(tenants, 1)));
}

Ledger::Request& Ledger::open(Prompt prompt, Time now, std::optional<Time> deadline) {
  const StreamId id = prompt.generate.request;
  assert(!requests_.contains(id));
  Request& request = requests_[id];
  request.number = next_number_++;
  request.admitted = now;
  request.deadline = deadline;
  if (deadline)
    deadlines_.insert({*deadline, id});
  request.choices.resize(size_t(prompt.generate.n));
  for (Choice& choice : request.choices) {
    choice.epoch = first_epoch(id);
    choice.since = now;
  }
  request.prompt = std::move(prompt);
  hold(request, request.length() * int64_t(request.choices.size()), 1);
  return request;
}

void Ledger::hold(const Request& request, int64_t tokens, int32_t requests) {
  admission_.add_size(tokens);
  for (int32_t i = 0; i < requests; ++i)
    admission_.add_request();
  for (int32_t i = 0; i > requests; --i)
    admission_.remove_request();
  Held& held = held_[request.tenant()];
  held.tokens += tokens;
  held.requests += requests;
  if (held.tokens == 0 && held.requests == 0)
    held_.erase(request.tenant());
  const int32_t priority = request.prompt.generate.priority;
  if ((held_tokens_[priority] += tokens) == 0)
    held_tokens_.erase(priority);
}

void Ledger::wait(const Request& request, int32_t choice) {
  waiting_.push({.request = request.prompt.generate.request,
                 .choice = choice,
                 .tenant = request.tenant(),
                 .priority = request.prompt.generate.priority,
                 .number = request.number,
                 .since = request.choices[size_t(choice)].since});
}

void Ledger::resume(LocalResumption resumption, Time now, std::optional<Time> deadline) {
  Request& request = open(std::move(resumption.prompt), now, deadline);
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
      wait(request, index);
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

std::optional<Sequence> Ledger::next(Time now) {
  if (waiting_.empty() || in_device_ >= options_.max_batch_size)
    return std::nullopt;
  // Enough to fill two passes; a tenant that has nothing there need not wait for the prompts of others to be read.
  const bool lacks = waiting_.in_device(waiting_.front(now)->tenant) == 0;
  if (!lacks && unread_tokens_ >= 2 * int64_t(options_.prefill_chunk))
    return std::nullopt;
  const WaitingChoice first = *waiting_.pop(now);
  Request& request = requests_.at(first.request);
  Choice& choice = request.choices[size_t(first.choice)];
  choice.waited = now - first.since;
  set_state(request, choice, Choice::sent);
  if (!std::exchange(choice.charged, true))
    waiting_.charge(request.tenant(), request.length());
  if (waiting_.empty())
    queue_wait_.forget();

  Sequence sequence = make_sequence(request.prompt, {first.request, first.choice, choice.epoch}, choice.emitted_ids,
                                    context_length_);
  sequence.scored = request.scored;
  sequence.rank = rank(request, first.choice);
  sequence.ahead = has_less(request.tenant());
  return sequence;
}

bool Ledger::has_less(const std::string& tenant) const {
  const auto tenants = int32_t(waiting_.active_tenants());
  return tenants > 1 && waiting_.in_device(tenant) <= std::max(options_.max_batch_size / tenants, 1);
}

uint64_t Ledger::rank(const Request& request, int32_t choice) { return request.number * kMaxChoices + uint64_t(choice); }

std::optional<SequenceId> Ledger::yield(Time now) {
  if (waiting_.empty() || in_device_ < options_.max_batch_size || yielding_)
    return std::nullopt;
  const WaitingChoice& first = *waiting_.front(now);
  const bool lacks = waiting_.in_device(first.tenant) == 0;
  // As in the queue: one that made room for another that it then goes before would only be read again.
  const auto place = [&](int32_t priority, Time since, const std::string& tenant, uint64_t number) {
    return std::tuple(waiting_.level(priority, since, now), waiting_.service(tenant), number);
  };
  const auto wanted = place(first.priority, first.since, first.tenant, first.number);
  // The choice that loses least by it: of the tenant with the most, or the least urgent, and the latest of these.
  Choice* best = nullptr;
  std::tuple<int32_t, int32_t> most;
  for (const auto& [rank, id] : running_) {
    Request& request = requests_.at(id.request);
    Choice& choice = request.choices[size_t(id.choice)];
    const auto own = place(request.prompt.generate.priority, now - choice.waited, request.tenant(), request.number);
    const int32_t of_tenant = waiting_.in_device(request.tenant());
    const bool less_urgent = std::get<0>(own) > std::get<0>(wanted), has_more = lacks && of_tenant > 1 && own > wanted;
    if (choice.emitted_ids.empty() || !(less_urgent || has_more))
      continue;
    const std::tuple claim(std::get<0>(own), of_tenant);
    if (!best || claim >= most) {
      best = &choice;
      most = claim;
      yielding_ = id;
    }
  }
  if (best)
    best->since = now - best->waited;
  return yielding_;
}

void Ledger::set_state(Request& request, Choice& choice, Choice::State state) {
  const auto waits = [](Choice::State state) { return state == Choice::waiting || state == Choice::sent; };
  const auto in_device = [](Choice::State state) { return state == Choice::sent || state == Choice::running; };
  if (waits(choice.state) != waits(state))
    hold(request, waits(state) ? request.length() : -request.length(), 0);
  const int64_t unread_before = unread(request, choice);
  if (in_device(choice.state) != in_device(state)) {
    const int32_t change = in_device(state) ? 1 : -1;
    in_device_ += change;
    waiting_.add_in_device(request.tenant(), change);
  }
  const auto index = int32_t(&choice - request.choices.data());
  const SequenceId id{request.prompt.generate.request, index, choice.epoch};
  if (state == Choice::running)
    running_[rank(request, index)] = id;
  else if (choice.state == Choice::running)
    running_.erase(rank(request, index));
  if (!in_device(state) && yielding_ == id)
    yielding_.reset();
  choice.state = state;
  unread_tokens_ += unread(request, choice) - unread_before;
}

// A long prompt counts as a part of itself, so that short ones are there to pass it.
int64_t Ledger::unread(const Request& request, const Choice& choice) const {
  const bool in_device = choice.state == Choice::sent || choice.state == Choice::running;
  return in_device ? std::min<int64_t>(request.length() - choice.read, (options_.prefill_chunk + 1) / 2) : 0;
}

void Ledger::set_read(const Request& request, Choice& choice, int32_t tokens) {
  unread_tokens_ -= unread(request, choice);
  choice.read = tokens;
  unread_tokens_ += unread(request, choice);
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

void Ledger::started(const SequenceStarted& started, Time now) {
  const SequenceId& id = started.sequence;
  Choice* choice = find(id);
  if (!choice)
    return;
  Request& request = requests_.at(id.request);
  set_state(request, *choice, Choice::running);
  const int32_t cached = std::min(started.cached_tokens, int32_t(request.length()));
  if (!std::exchange(choice->refunded, true))
    waiting_.charge(request.tenant(), -cached);
  set_read(request, *choice, cached);
  queue_wait_.note_start(request.length(), now);
  if (!request.began) {
    request.began = now;
    hold(request, 0, -1);
    admission_.note_wait(now - request.admitted);
  }
  sink_(Started{.request = id.request,
                .choice = id.choice,
                .epoch = id.epoch,
                .prompt_tokens = int32_t(request.length()),
                .cached_tokens = cached,
                .seed = request.prompt.generate.sampling.seed.value_or(0)});
}

void Ledger::progress(const Progress& progress) {
  Choice* choice = find({progress.request, progress.choice, progress.epoch});
  if (!choice)
    return;
  totals_.prompt_tokens += std::max(progress.processed - choice->read, 0);
  set_read(requests_.at(progress.request), *choice, progress.processed);
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
    waiting_.charge(request.tenant(), kOutputWeight);
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
    hold(request, 0, -1);
  if (request.deadline)
    deadlines_.erase({*request.deadline, done.request});
  ++totals_.finished;
  requests_.erase(done.request);
  sink_(done);
  return true;
}

void Ledger::finish_all(const StreamId& id, FinishReason reason, std::string_view error, Time now) {
  Request& request = requests_.at(id);
  waiting_.erase(id, std::string(request.tenant()));
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
  if (!requests_.contains(id))
    return {};
  ++totals_.cancelled;
  auto in_device = forget(id);
  finish_all(id, FinishReason::cancelled, {}, now);
  return in_device;
}

std::vector<SequenceId> Ledger::expire(Time now) {
  std::vector<SequenceId> in_device;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const StreamId id = deadlines_.begin()->second;
    std::ranges::copy(forget(id), std::back_inserter(in_device));
    ++totals_.expired;
    finish_all(id, FinishReason::deadline, {}, now);
  }
  return in_device;
}

std::optional<Ledger::Time> Ledger::next_deadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

std::vector<SequenceId> Ledger::forget(const StreamId& id) {
  std::vector<SequenceId> in_device;
  for (int32_t index = 0; const Choice& choice : requests_.at(id).choices) {
    if (choice.state == Choice::sent || choice.state == Choice::running)
      in_device.push_back({id, index, choice.epoch});
    ++index;
  }
  remember_cancelled(in_device);
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

void Ledger::preempted(const SequencePreempted& preempted) {
  Choice* choice = find(preempted.sequence);
  if (!choice)
    return;
  ++(preempted.yielded ? totals_.yielded : totals_.preempted);
  wait_again(requests_.at(preempted.sequence.request), preempted.sequence.choice);
}

void Ledger::wait_again(Request& request, int32_t index) {
  Choice& choice = request.choices[size_t(index)];
  set_state(request, choice, Choice::waiting);
  ++choice.epoch;
  choice.read = 0;
  wait(request, index);
}

void Ledger::take_back() {
  for (auto& [id, request] : requests_)
    for (int32_t index = 0; index < int32_t(request.choices.size()); ++index) {
      const Choice::State state = request.choices[size_t(index)].state;
      if (state == Choice::sent || state == Choice::running)
        wait_again(request, index);
    }
}

void Ledger::lose_device(Time now) {
  device_lost_ = true;
  while (!requests_.empty())
    finish_all(StreamId(requests_.begin()->first), FinishReason::error, to_string(Error::device_lost), now);
}

Ledger::Totals Ledger::totals() const {
  Totals totals = totals_;
  totals.running = in_device_;
  totals.waiting = int32_t(waiting_.size());
  totals.queued_tokens = admission_.size();
  return totals;
}

} // namespace millrace
