#include "gateway/zeromq/follows.hpp"

#include "gateway/event_frame.hpp"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kMaxFollows = 20'000;
constexpr size_t kMaxFollowsOfClient = 1'024;
constexpr int32_t kMaxWindow = 65'536;
constexpr size_t kPiece = 16u << 10; // bytes for one follower before it is another's turn
constexpr size_t kUsualEvent = 256;  // bytes; so that not much more is read than there is credit for
constexpr std::chrono::milliseconds kFirstRetry{1}, kLastRetry{64}; // of a client without room

} // namespace

/// Numbered events that may be sent.
int64_t Follows::Follower::credit() const {
  int64_t used = 0;
  for (size_t i = 0; i < cursor.next.size(); ++i)
    used += cursor.next[i] - acknowledged[i];
  return window - used;
}

std::optional<Failure> Follows::begin(const Client& client, const Follow& request) {
  const size_t choices = streams_.next_seqs(request.request).size();
  if (choices == 0)
    return Failure{Error::unknown_request, "request", "no such stream"};
  if (request.window < 1 || request.window > kMaxWindow)
    return Failure{Error::invalid_field, "window", "must be in 1 … " + std::to_string(kMaxWindow)};
  if (request.from_seq.size() > choices)
    return Failure{Error::invalid_field, "from_seq", "has more entries than the stream has choices"};
  for (const int64_t seq : request.from_seq)
    if (seq < 0)
      return Failure{Error::invalid_field, "from_seq", "must not be negative"};

  const Key key{client.routing_id, request.request};
  if (!followers_.contains(key)) {
    const auto of_client = clients_.find(client.routing_id);
    if (of_client != clients_.end() && of_client->second >= kMaxFollowsOfClient)
      return Failure{Error::busy, "", "the client follows too many streams"};
    if (followers_.size() >= kMaxFollows)
      return Failure{Error::busy, "", "too many streams are followed"};
    readers_[request.request].insert(client.routing_id);
    ++clients_[client.routing_id];
  }
  Follower& follower = followers_[key];
  const bool queued = follower.queued;
  follower = {.client = client,
              .cursor = {},
              .acknowledged = request.from_seq,
              .window = request.window,
              .queued = queued,
              .stalled_for = {}};
  follower.acknowledged.resize(choices);
  follower.cursor.next = follower.acknowledged;
  queue(key, follower);
  return std::nullopt;
}

void Follows::acknowledge(const Client& client, const Read& request) {
  const auto entry = followers_.find({client.routing_id, request.request});
  if (entry == followers_.end())
    return;
  Follower& follower = entry->second;
  const size_t choices = std::min(request.next_seq.size(), follower.acknowledged.size());
  for (size_t i = 0; i < choices; ++i)
    follower.acknowledged[i] =
        std::clamp(request.next_seq[i], follower.acknowledged[i], follower.cursor.next[i]);
  queue(entry->first, follower);
}

void Follows::note(const StreamId& stream) {
  if (readers_.empty())
    return;
  const auto readers = readers_.find(stream);
  if (readers == readers_.end())
    return;
  for (const std::string& routing_id : readers->second) {
    const auto entry = followers_.find({routing_id, stream});
    queue(entry->first, entry->second);
  }
}

size_t Follows::pump() {
  const auto now = Clock::now();
  for (; !stalled_.empty() && stalled_.begin()->first <= now; stalled_.erase(stalled_.begin()))
    ready_.push_back(std::move(stalled_.begin()->second));
  size_t frames = 0;
  for (size_t left = ready_.size(); left > 0; --left) {
    const Key key = std::move(ready_.front());
    ready_.pop_front();
    const auto entry = followers_.find(key);
    if (entry == followers_.end()) // its client has gone
      continue;
    Follower& follower = entry->second;
    const Step outcome = step(key.second, follower, frames);
    if (outcome != Step::stalled)
      follower.stalled_for = {};
    switch (outcome) {
    case Step::idle: follower.queued = false; break;
    case Step::again: ready_.push_back(key); break;
    case Step::stalled:
      follower.stalled_for = std::clamp(2 * follower.stalled_for, kFirstRetry, kLastRetry);
      stalled_.emplace(now + follower.stalled_for, key);
      break;
    case Step::over: erase(key); break;
    }
  }
  return frames;
}

/// One piece for one follower.
Follows::Step Follows::step(const StreamId& stream, Follower& follower, size_t& frames) {
  const auto send = [&](zmq::message_t& frame) {
    const Replies::Sent sent = replies_.try_send(follower.client, frame);
    frames += sent == Replies::Sent::yes;
    return sent;
  };
  int64_t credit = follower.credit();
  if (credit <= 0) {
    const auto ends = streams_.next_seqs(stream);
    if (!ends.empty() && ends != follower.cursor.next) // else there may be something that takes no credit
      return Step::idle;
  }
  Cursor read = follower.cursor;
  // Many may stall at once, and most tries are in vain: one event is enough to see.
  const size_t budget = follower.stalled_for > follower.stalled_for.zero()
                            ? 1
                            : std::min<size_t>(kPiece, std::max<int64_t>(credit, 1) * kUsualEvent);
  Streams::Piece piece = streams_.read(stream, read, budget);
  follower.cursor.live_from = read.live_from;
  if (!piece.known) {
    zmq::message_t frame =
        to_frame(rejection(stream, {Error::unknown_request, "request", "the stream has left the log"}));
    return send(frame) == Replies::Sent::not_now ? Step::stalled : Step::over;
  }
  if (piece.lag) {
    zmq::message_t frame = to_frame(Lagging{stream, piece.lag->choice, piece.lag->wanted, piece.lag->held});
    if (const auto sent = send(frame); sent != Replies::Sent::yes)
      return sent == Replies::Sent::not_now ? Step::stalled : Step::over;
    // What is gone is not on its way, so it takes no credit.
    follower.cursor.next[piece.lag->choice] = piece.lag->held;
    follower.acknowledged[piece.lag->choice] += piece.lag->held - piece.lag->wanted;
  }
  for (LoggedEvent& event : piece.events) {
    if (event.seq >= 0 && credit-- <= 0)
      return Step::idle;
    if (const auto sent = send(event.body); sent != Replies::Sent::yes)
      return sent == Replies::Sent::not_now ? Step::stalled : Step::over;
    advance(follower.cursor, event);
  }
  if (follower.cursor.ended)
    return Step::over;
  return piece.more ? Step::again : Step::idle;
}

void Follows::sweep() {
  for (const auto& [stream, readers] : readers_)
    if (!streams_.contains(stream))
      note(stream);
}

void Follows::queue(const Key& key, Follower& follower) {
  if (std::exchange(follower.queued, true))
    return;
  ready_.push_back(key);
}

void Follows::erase(const Key& key) {
  if (followers_.erase(key) == 0)
    return;
  const auto readers = readers_.find(key.second);
  readers->second.erase(key.first);
  if (readers->second.empty())
    readers_.erase(readers);
  const auto client = clients_.find(key.first);
  if (--client->second == 0)
    clients_.erase(client);
}

} // namespace millrace
