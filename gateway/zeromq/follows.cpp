#include "gateway/zeromq/follows.hpp"

#include "gateway/event_frame.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace millrace {
namespace {

constexpr int32_t kMaxWindow = 65'536;
constexpr size_t kPiece = 16u << 10; // bytes for one follower before it is another's turn
constexpr size_t kUsualEvent = 256;  // bytes; so that not much more is read than there is credit for
constexpr std::chrono::milliseconds kFirstRetry{1}, kLastRetry{64}; // of a client without room
constexpr int kSweepsInSilence = 10;
constexpr size_t kPartToMakeRoom = 16; // of all follows

Replies::Sent try_reject(Replies& replies, const Client& client, const StreamId& stream, const Failure& failure) {
  zmq::message_t frame = to_frame(rejection(stream, failure));
  return replies.try_send(client, frame);
}

} // namespace

/// Numbered events that may be sent.
int64_t Follows::Follower::credit() const {
  int64_t used = 0;
  for (size_t i = 0; i < cursor.next.size(); ++i)
    used += cursor.next[i] - acknowledged[i];
  return window - used;
}

void Follows::hear(const Client& client) {
  if (const auto found = clients_.find(client.routing_id); found != clients_.end())
    found->second.heard = Clock::now();
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
    if (of_client != clients_.end() && of_client->second.follows >= limits_.of_client)
      return Failure{Error::busy, "", "the client follows too many streams"};
    if (followers_.size() >= limits_.follows && !make_room())
      return Failure{Error::busy, "", "too many streams are followed"};
    readers_[request.request].insert(client.routing_id);
    Reader& reader = clients_[client.routing_id];
    ++reader.follows;
    reader.heard = Clock::now();
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
    case Step::client_gone: forget(key.first); break;
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
  const auto unsent = [](Replies::Sent sent) {
    return sent == Replies::Sent::not_now ? Step::stalled : Step::client_gone;
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
    const auto sent = try_reject(replies_, follower.client, stream,
                                 {Error::unknown_request, "request", "the stream has left the log"});
    frames += sent == Replies::Sent::yes;
    return sent == Replies::Sent::yes ? Step::over : unsent(sent);
  }
  if (piece.lag) {
    zmq::message_t frame = to_frame(Lagging{stream, piece.lag->choice, piece.lag->wanted, piece.lag->held});
    if (const auto sent = send(frame); sent != Replies::Sent::yes)
      return unsent(sent);
    // What is gone is not on its way, so it takes no credit.
    follower.cursor.next[piece.lag->choice] = piece.lag->held;
    follower.acknowledged[piece.lag->choice] += piece.lag->held - piece.lag->wanted;
  }
  for (LoggedEvent& event : piece.events) {
    if (event.seq >= 0 && credit-- <= 0)
      return Step::idle;
    if (const auto sent = send(event.body); sent != Replies::Sent::yes)
      return unsent(sent);
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
  if (const auto now = Clock::now(); now >= next_sweep_) {
    next_sweep_ = now + limits_.silence / kSweepsInSilence;
    end_silent(limits_.silence, followers_.size());
  }
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
  if (--client->second.follows == 0)
    clients_.erase(client);
}

/// Of a client that has gone.
void Follows::forget(const std::string& routing_id) {
  auto entry = followers_.lower_bound({routing_id, StreamId{}});
  while (entry != followers_.end() && entry->first.first == routing_id) {
    const Key key = entry->first;
    ++entry;
    erase(key);
  }
}

// ---- who is taken for gone ----

/// A client that is refused may ask again at once: others are looked at now and then only.
bool Follows::make_room() {
  if (const auto now = Clock::now(); now >= next_making_room_) {
    next_making_room_ = now + limits_.silence_when_full / kSweepsInSilence;
    end_silent(limits_.silence_when_full, std::max<size_t>(followers_.size() / kPartToMakeRoom, 1));
  }
  return followers_.size() < limits_.follows;
}

/// Those first that were silent longest, until enough of their follows have ended.
void Follows::end_silent(std::chrono::milliseconds silence, size_t enough) {
  const auto before = Clock::now() - silence;
  std::vector<std::pair<Clock::time_point, std::string>> silent;
  for (const auto& [routing_id, client] : clients_)
    if (client.heard <= before)
      silent.emplace_back(client.heard, routing_id);
  std::sort(silent.begin(), silent.end());

  const size_t end = followers_.size() - enough;
  for (auto client = silent.begin(); client != silent.end() && followers_.size() > end; ++client)
    end_without_credit(client->second);
}

/// A reader with credit owes nothing; what it is sent next shows whether it is there.
void Follows::end_without_credit(const std::string& routing_id) {
  static const Failure kSilent{Error::busy, "", "nothing was read for too long; it can be followed on"};
  std::vector<std::pair<StreamId, Client>> ending;
  for (auto entry = followers_.lower_bound({routing_id, StreamId{}});
       entry != followers_.end() && entry->first.first == routing_id; ++entry)
    if (entry->second.credit() <= 0)
      ending.emplace_back(entry->first.second, entry->second.client);
  for (const auto& [stream, client] : ending) {
    switch (try_reject(replies_, client, stream, kSilent)) {
    case Replies::Sent::yes: erase({routing_id, stream}); break;
    case Replies::Sent::not_now: return; // later, for nobody loses a follow without a word
    case Replies::Sent::client_gone: return forget(routing_id);
    }
  }
}

} // namespace millrace
