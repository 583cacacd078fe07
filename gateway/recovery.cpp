#include "gateway/recovery.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace millrace {

Recovery::Recovery(Generate generate, std::string owner) : owner_(std::move(owner)) {
  resumption_.choices.resize(generate.n);
  resumption_.generate = std::move(generate);
}

bool Recovery::take(const Event& event) {
  if (ended_)
    return false;
  if (std::holds_alternative<Rejected>(event))
    return ended_ = true;
  if (std::holds_alternative<Done>(event))
    return ended_ = std::ranges::all_of(resumption_.choices, &Resumption::Choice::finished);

  return std::visit(
      [this]<class E>(const E& e) {
        if constexpr (std::is_same_v<E, Done> || std::is_same_v<E, Rejected>) {
          return false;
        } else {
          Resumption::Choice* const found = choice(e.choice);
          if (!found)
            return false;
          const auto next = static_cast<int64_t>(found->emitted_ids.size());
          if constexpr (std::is_same_v<E, Token> || std::is_same_v<E, Finished>)
            if (found->finished || e.seq != next)
              return false;
          if constexpr (std::is_same_v<E, PromptLogprobs>) {
            if (e.position != resumption_.scored)
              return false;
            resumption_.scored += static_cast<int32_t>(e.tokens.size());
          }
          if constexpr (std::is_same_v<E, Token>)
            found->emitted_ids.push_back(e.id);
          if constexpr (std::is_same_v<E, Finished>)
            found->finished = true;
          if constexpr (std::is_same_v<E, Started>)
            prompt_tokens_ = e.prompt_tokens;
          found->next_epoch = std::max(found->next_epoch, e.epoch + 1);
          return true;
        }
      },
      event);
}

std::vector<Event> Recovery::ending(Error error) const {
  std::vector<Event> events;
  Done done{.request = resumption_.generate.request, .prompt_tokens = prompt_tokens_};
  for (size_t i = 0; i < resumption_.choices.size(); ++i) {
    const Resumption::Choice& open = resumption_.choices[i];
    done.generated_tokens += static_cast<int32_t>(open.emitted_ids.size());
    if (open.finished)
      continue;
    Finished finished;
    finished.request = done.request;
    finished.choice = static_cast<int32_t>(i);
    finished.epoch = open.next_epoch;
    finished.seq = static_cast<int64_t>(open.emitted_ids.size());
    finished.reason = to_string(FinishReason::error);
    finished.error = to_string(error);
    events.push_back(std::move(finished));
  }
  events.push_back(std::move(done));
  return events;
}

Resumption::Choice* Recovery::choice(int32_t number) {
  if (number < 0 || std::cmp_greater_equal(number, resumption_.choices.size()))
    return nullptr;
  return &resumption_.choices[number];
}

} // namespace millrace
