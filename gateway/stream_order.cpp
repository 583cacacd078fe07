#include "gateway/stream_order.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kMaxChoices = 1024; // more than any server has; a broken one must not cost memory

} // namespace

StreamOrder::StreamOrder(const StreamId& stream, std::vector<int64_t> next, size_t room)
    : stream_(stream), room_(std::max<size_t>(room, 1)), choices_(std::min(next.size(), kMaxChoices)) {
  for (size_t i = 0; i < choices_.size(); ++i)
    choices_[i].next = next[i];
}

void StreamOrder::take(Event event) {
  if (ended_)
    return;
  std::visit(
      [this]<class E>(E& e) {
        if constexpr (std::is_same_v<E, Token> || std::is_same_v<E, Finished>) {
          if (Choice* const c = choice(e.choice))
            number(*c, e.seq, std::move(e));
        } else if constexpr (std::is_same_v<E, Done>) {
          done_ = e;
        } else if constexpr (std::is_same_v<E, Rejected>) {
          ready_.emplace_back(std::move(e));
          ended_ = true;
        } else if (ready_.size() < room_) { // nothing brings these again, but the text does without them
          ready_.emplace_back(std::move(e));
        }
      },
      event);
  settle();
}

void StreamOrder::told(const std::vector<int64_t>& next_seq) {
  for (size_t i = 0; i < std::min(next_seq.size(), kMaxChoices); ++i)
    if (Choice* const c = choice(static_cast<int32_t>(i)))
      c->told = std::max(c->told, next_seq[i]);
}

void StreamOrder::replayed(int32_t number, int64_t from_seq, int64_t next_seq) {
  Choice* const c = choice(number);
  if (!c || c->closed || ended_)
    return;
  if (from_seq > c->next)
    lose(number, *c, from_seq);
  if (done_ && !c->closed && c->next >= next_seq) { // the end of the choice itself has left the log
    lose(number, *c, c->next);
    c->closed = true;
  }
  settle();
}

void StreamOrder::skip(const Lagging& lagging) {
  if (Choice* const c = choice(lagging.choice); c && !ended_ && !c->closed && lagging.held_seq > c->next)
    lose(lagging.choice, *c, lagging.held_seq);
  settle();
}

std::optional<StreamOrder::Missing> StreamOrder::missing() const {
  if (ended_ || ready_.size() >= room_)
    return std::nullopt;
  for (size_t i = 0; i < choices_.size(); ++i)
    if (const Choice& c = choices_[i]; !c.closed && (c.told > c.next || done_))
      return Missing{static_cast<int32_t>(i), c.next};
  return std::nullopt;
}

std::optional<StreamEvent> StreamOrder::pop() {
  if (ready_.empty())
    return std::nullopt;
  const bool was_full = ready_.size() >= room_;
  StreamEvent event = std::move(ready_.front());
  ready_.pop_front();
  if (was_full) {
    for (Choice& c : choices_)
      go_on(c);
    settle();
  }
  return event;
}

std::vector<int64_t> StreamOrder::next() const {
  std::vector<int64_t> next;
  for (const Choice& c : choices_)
    next.push_back(c.next);
  return next;
}

StreamOrder::Choice* StreamOrder::choice(int32_t number) {
  if (number < 0 || static_cast<size_t>(number) >= kMaxChoices)
    return nullptr;
  if (static_cast<size_t>(number) >= choices_.size())
    choices_.resize(static_cast<size_t>(number) + 1);
  return &choices_[static_cast<size_t>(number)];
}

void StreamOrder::number(Choice& c, int64_t seq, StreamEvent event) {
  if (c.closed || seq < c.next)
    return;
  c.told = std::max(c.told, seq + 1);
  if (seq == c.next && ready_.size() < room_) {
    hand_out(c, std::move(event));
    go_on(c);
  } else if (c.ahead.size() < room_) {
    c.ahead.emplace(seq, std::move(event));
  }
}

/// Takes what stood behind a gap that is closed now.
void StreamOrder::go_on(Choice& c) {
  c.ahead.erase(c.ahead.begin(), c.ahead.lower_bound(c.next));
  while (!c.closed && ready_.size() < room_ && !c.ahead.empty() && c.ahead.begin()->first == c.next) {
    StreamEvent event = std::move(c.ahead.begin()->second);
    c.ahead.erase(c.ahead.begin());
    hand_out(c, std::move(event));
  }
}

void StreamOrder::hand_out(Choice& c, StreamEvent event) {
  c.closed = std::holds_alternative<Finished>(event);
  ++c.next;
  ready_.push_back(std::move(event));
}

void StreamOrder::lose(int32_t number, Choice& c, int64_t held) {
  ready_.emplace_back(Lagging{.request = stream_, .choice = number, .wanted_seq = c.next, .held_seq = held});
  c.next = held;
  go_on(c);
}

void StreamOrder::settle() {
  if (ended_ || !done_ || std::ranges::any_of(choices_, [](const Choice& c) { return !c.closed; }))
    return;
  ready_.emplace_back(std::move(*done_));
  ended_ = true;
}

} // namespace millrace
