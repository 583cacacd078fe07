#include "actors/open_requests.hpp"

#include <utility>

namespace millrace {

std::optional<Failure> OpenRequests::open(const Generate& request) {
  std::lock_guard lock{mutex_};
  if (refusal_)
    return refusal_;
  const auto [entry, fresh] = open_.try_emplace(request.request, size_t(request.n));
  if (!fresh)
    return Failure{Error::conflict, "request", "this id is in use"};
  return std::nullopt;
}

void OpenRequests::forget(const StreamId& id) {
  std::lock_guard lock{mutex_};
  open_.erase(id);
  emptied_.notify_all();
}

void OpenRequests::publish(const Event& event) {
  // A reader that has the last event may use the id again at once; whoever waits for the end wants it delivered.
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
          Choice& choice = entry->second.at(event.choice);
          choice.epoch = event.epoch;
          if constexpr (std::is_same_v<E, Token>)
            choice.next_seq = event.seq + 1;
          if constexpr (std::is_same_v<E, Finished>)
            choice.finished = true;
        }
      },
      event);
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
  for (const auto& [id, choices] : open_)
    ids.push_back(id);
  return ids;
}

void OpenRequests::fail_all(Error error) {
  std::unordered_map<StreamId, std::vector<Choice>> open;
  {
    std::lock_guard lock{mutex_};
    open = open_;
  }
  for (const auto& [id, choices] : open) {
    int64_t tokens = 0;
    for (int32_t index = 0; const Choice& choice : choices) {
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
    publish(Done{.request = id, .generated_tokens = int32_t(tokens)});
  }
}

} // namespace millrace
