#include "actors/open_requests.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace millrace {

std::optional<Failure> OpenRequests::open(const Generate& request) {
  return open(request.request, std::vector<Choice>(size_t(request.n)));
}

std::optional<Failure> OpenRequests::open(const ResumedRequest& request) {
  std::vector<Choice> choices;
  for (const ResumedRequest::Choice& choice : request.choices)
    choices.push_back({.epoch = choice.next_epoch,
                       .next_seq = int64_t(choice.emitted_ids.size()),
                       .finished = choice.finished});
  return open(request.generate.request, std::move(choices));
}

std::optional<Failure> OpenRequests::open(const StreamId& id, std::vector<Choice> choices) {
  std::lock_guard lock{mutex_};
  if (refusal_)
    return refusal_;
  const Time now = clock_();
  if (open_.empty())
    busy_since_ = now;
  const auto [entry, fresh] = open_.try_emplace(id);
  if (!fresh)
    return Failure{Error::conflict, "request", "this id is in use"};
  Request& request = entry->second;
  request.choices = std::move(choices);
  request.number = next_number_++;
  request.opened = now;
  return std::nullopt;
}

void OpenRequests::forget(const StreamId& id) {
  std::lock_guard lock{mutex_};
  open_.erase(id);
  emptied_.notify_all();
}

void OpenRequests::publish(const Event& event) {
  // A reader that has the last event may use the id again at once; whoever waits for the end wants it
  // delivered.
  {
    std::lock_guard lock{mutex_};
    note(event);
    ++publishing_;
  }
  sink_(event);
  {
    std::lock_guard lock{mutex_};
    --publishing_;
    if (open_.empty())
      emptied_.notify_all();
  }
}

void OpenRequests::note(const Event& event) {
  std::visit(
      [this]<class E>(const E& event) {
        const auto entry = open_.find(event.request);
        if (entry == open_.end())
          return;
        if constexpr (std::is_same_v<E, Done> || std::is_same_v<E, Rejected>) {
          open_.erase(entry);
        } else {
          entry->second.choices.at(size_t(event.choice)).epoch = event.epoch;
          note(event, entry->second);
        }
      },
      event);
}

void OpenRequests::note(const Started& event, Request& request) {
  request.prompt_tokens = event.prompt_tokens;
  request.phase = std::max(request.phase, Phase::prefill);
  request.choices[size_t(event.choice)].processed = event.cached_tokens;
}

void OpenRequests::note(const Progress& event, Request& request) {
  request.choices[size_t(event.choice)].processed = event.processed;
}

void OpenRequests::note(const Token& event, Request& request) {
  request.choices[size_t(event.choice)].next_seq = event.seq + 1;
  request.phase = Phase::decode;
  if (request.generated++ == 0)
    request.first_token = clock_();
}

void OpenRequests::note(const Finished& event, Request& request) {
  request.choices[size_t(event.choice)].finished = true;
}

void OpenRequests::encoded(const StreamId& id, int32_t prompt_tokens) {
  std::lock_guard lock{mutex_};
  const auto entry = open_.find(id);
  if (entry == open_.end())
    return;
  entry->second.prompt_tokens = prompt_tokens;
  entry->second.phase = std::max(entry->second.phase, Phase::waiting);
}

void OpenRequests::refuse(Failure reason) {
  std::lock_guard lock{mutex_};
  refusal_ = std::move(reason);
}

bool OpenRequests::wait_until_empty(std::chrono::milliseconds patience) {
  std::unique_lock lock{mutex_};
  return emptied_.wait_for(lock, patience, [this] { return open_.empty() && publishing_ == 0; });
}

std::vector<StreamId> OpenRequests::ids() const {
  std::lock_guard lock{mutex_};
  std::vector<StreamId> ids;
  for (const auto& [id, request] : open_)
    ids.push_back(id);
  return ids;
}

std::optional<OpenRequests::Time> OpenRequests::busy_since() const {
  std::lock_guard lock{mutex_};
  return open_.empty() ? std::nullopt : std::optional(busy_since_);
}

std::vector<RequestStats> OpenRequests::stats(size_t limit) const {
  std::lock_guard lock{mutex_};
  const Time now = clock_();
  std::vector<const std::pair<const StreamId, Request>*> oldest;
  for (const auto& entry : open_)
    oldest.push_back(&entry);
  const size_t n = std::min(limit, oldest.size());
  std::ranges::partial_sort(oldest, oldest.begin() + ptrdiff_t(n), {},
                            [](const auto* entry) { return entry->second.number; });
  std::vector<RequestStats> stats;
  for (const auto* entry : std::span(oldest).first(n))
    stats.push_back(describe(entry->first, entry->second, now));
  return stats;
}

RequestStats OpenRequests::describe(const StreamId& id, const Request& request, Time now) {
  static constexpr const char* kPhases[] = {"encoding", "waiting", "prefill", "decode"};
  const auto seconds = [](Time from, Time to) { return std::chrono::duration<double>(to - from).count(); };
  RequestStats stats{.stream = to_hex(id).substr(0, 8),
                     .phase = kPhases[size_t(request.phase)],
                     .choices = int32_t(request.choices.size()),
                     .prompt_tokens = request.prompt_tokens,
                     .age_ms = 1000 * seconds(request.opened, now)};
  for (const Choice& choice : request.choices) {
    stats.processed_tokens = std::max(stats.processed_tokens, choice.processed);
    stats.generated_tokens += choice.next_seq;
  }
  if (request.generated > 1 && now > request.first_token)
    stats.tokens_per_second = double(request.generated - 1) / seconds(request.first_token, now);
  return stats;
}

void OpenRequests::fail_all(Error error) {
  std::unordered_map<StreamId, Request> open;
  {
    std::lock_guard lock{mutex_};
    open = open_;
  }
  for (const auto& [id, request] : open) {
    int64_t tokens = 0;
    for (int32_t index = 0; const Choice& choice : request.choices) {
      tokens += choice.next_seq;
      if (!choice.finished)
        publish(Finished{.request = id,
                         .choice = index,
                         .epoch = choice.epoch,
                         .seq = choice.next_seq,
                         .reason = std::string(to_string(FinishReason::error)),
                         .text = {},
                         .error = std::string(to_string(error))});
      ++index;
    }
    publish(Done{.request = id, .prompt_tokens = request.prompt_tokens, .generated_tokens = int32_t(tokens)});
  }
}

} // namespace millrace
