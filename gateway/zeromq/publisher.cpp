#include "gateway/zeromq/publisher.hpp"

#include "gateway/event_frame.hpp"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// A subscription is 17 bytes, and the rest of what a subscriber sends are the commands of the handshake and
// of heartbeats. libzmq keeps each topic a peer sends in a trie of its own, about 30 times as large, before
// we see it.
constexpr int64_t kMaxIncomingFrame = 256;
constexpr int64_t kMaxCurveFrame = 1'024; // its handshake carries keys and the peer's routing id
constexpr int kReceiveQueue = 1'000;
constexpr int kNoDescriptor = -1;
constexpr size_t kMaxHeldBytes = 64u << 20; // of all topics together
constexpr size_t kPiece = 4'096;            // events that were kept back, before it is the turn of others
constexpr size_t kTurn = 8;                 // of one topic

size_t charge(const LoggedEvent& event) {
  return sizeof event + event.body.size();
}

StreamId stream_id(std::string_view topic) {
  StreamId id;
  std::copy(topic.begin(), topic.end(), id.bytes.begin());
  return id;
}

std::string_view topic_of(const zmq::message_t& frame) {
  return frame.to_string_view().substr(1);
}

/// That of the peer's connection, which libzmq knows only for frames that the peer itself sent over a wire.
int descriptor_of(const zmq::message_t& frame) {
  const int descriptor = zmq_msg_get(frame.handle(), ZMQ_SRCFD);
  return descriptor < 0 ? kNoDescriptor : descriptor;
}

/// All frames of a connection share their metadata. Null without a connection.
const void* metadata_address(const zmq::message_t& frame) {
  return zmq_msg_gets(frame.handle(), "__fd");
}

} // namespace

Publisher::Publisher(zmq::context_t& context, const std::string& endpoint, int queue,
                     size_t max_subscriptions, const SocketAccess& access, std::chrono::milliseconds patience)
    : socket_(bind_socket(context, zmq::socket_type::xpub, endpoint,
                          {.max_frame_bytes = access.secret_key.empty() ? kMaxIncomingFrame : kMaxCurveFrame,
                           .receive_queue = kReceiveQueue,
                           .send_queue = queue},
                          access)),
      patience_(patience), authenticated_(!access.secret_key.empty()), quarter_(std::max(1, queue / 4)),
      max_subscriptions_(max_subscriptions) {}

// ---- events ----

void Publisher::publish(LoggedEvent&& event) {
  if (!held_.empty())
    if (const auto held = held_.find(event.sequence.request); held != held_.end())
      return keep(held->second, std::move(event));
  if (try_send(event))
    return;
  if (!in_burst())
    return send_or_drop(event);
  turns_.push_back(event.sequence.request);
  Held& held = held_[event.sequence.request];
  held.deadline = Clock::now() + patience_;
  keep(held, std::move(event));
}

/// Topics take turns, those that were blocked first: they share the room of their subscribers.
size_t Publisher::flush() {
  const auto now = Clock::now();
  size_t total = 0;
  for (bool moved = true; moved && total < kPiece;) {
    std::deque<StreamId> blocked, served;
    for (const StreamId& stream : turns_) {
      const auto entry = held_.find(stream);
      const size_t sent = send_some(entry->second, now);
      total += sent;
      if (entry->second.events.empty())
        held_.erase(entry);
      else
        (sent > 0 ? served : blocked).push_back(stream);
    }
    moved = !served.empty();
    turns_ = std::move(blocked);
    turns_.insert(turns_.end(), served.begin(), served.end());
  }
  return total;
}

size_t Publisher::send_some(Held& held, Clock::time_point now) {
  size_t sent = 0;
  for (; !held.events.empty() && sent < kTurn; ++sent) {
    LoggedEvent event = take_first(held);
    if (try_send(event))
      continue;
    if (now < held.deadline) {
      put_back(held, std::move(event));
      break;
    }
    send_or_drop(event); // whoever had no room is left out from here on, until it has read a lot
  }
  if (sent > 0)
    held.deadline = now + patience_;
  return sent;
}

void Publisher::flush_all() {
  for (auto& [stream, held] : held_)
    while (!held.events.empty()) {
      LoggedEvent event = take_first(held);
      send_or_drop(event);
    }
  held_.clear();
  turns_.clear();
}

void Publisher::keep(Held& held, LoggedEvent&& event) {
  held_bytes_ += charge(event);
  ++held_events_;
  held.events.push_back(std::move(event));
  while (held_bytes_ > kMaxHeldBytes && held.events.size() > 1) {
    LoggedEvent first = take_first(held);
    send_or_drop(first);
  }
}

void Publisher::put_back(Held& held, LoggedEvent&& event) {
  held_bytes_ += charge(event);
  ++held_events_;
  held.events.push_front(std::move(event));
}

LoggedEvent Publisher::take_first(Held& held) {
  LoggedEvent event = std::move(held.events.front());
  held.events.pop_front();
  held_bytes_ -= charge(event);
  --held_events_;
  return event;
}

/// False if a subscriber to the topic has no room; then nobody gets it and the event stays whole.
bool Publisher::try_send(LoggedEvent& event) {
  constexpr auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
  const SequenceId& sequence = event.sequence;
  if (!socket_.send(zmq::buffer(sequence.request.bytes), more))
    return false;
  // With its first part the message has room everywhere.
  const EventHeader header = event_header(sequence, event.seq);
  socket_.send(zmq::buffer(header.bytes.data(), header.size), more);
  socket_.send(event.body, zmq::send_flags::dontwait);
  if (++sent_ >= quarter_) {
    sent_ = 0;
    marks_[next_mark_] = Clock::now();
    next_mark_ = (next_mark_ + 1) % marks_.size();
  }
  return true;
}

/// The queue of a subscriber without room took at least as long to fill as the last three quarters of one
/// took to send. If that is more than the patience, nobody reads there, and waiting would only delay the
/// topic's other readers.
bool Publisher::in_burst() const {
  return waiting() || Clock::now() - marks_[next_mark_] < patience_;
}

/// A subscriber without room loses the event, and libzmq leaves it out of its topics until it has read half
/// of its queue: it does not hold up what comes next.
void Publisher::send_or_drop(LoggedEvent& event) {
  if (try_send(event))
    return;
  ++overrun_;
  socket_.set(zmq::sockopt::xpub_nodrop, false);
  try_send(event);
  socket_.set(zmq::sockopt::xpub_nodrop, true);
}

// ---- subscriptions ----

bool Publisher::admit(size_t limit, const MayJoin& may_join,
                      const std::function<void(const StreamId&)>& joined) {
  zmq::message_t frame;
  for (size_t i = 0; i < limit; ++i) {
    if (!socket_.recv(frame, zmq::recv_flags::dontwait)) {
      out_of_step_ = false;
      return false;
    }
    const std::string_view bytes = frame.to_string_view();
    const bool subscription = !bytes.empty() && (bytes[0] == 0 || bytes[0] == 1) && !frame.more();
    // A peer may also send frames that are no subscriptions. For these libzmq 4.3 queues data but no peer,
    // and as long as the queue isn't empty it pairs later subscriptions with the wrong peer, who would then
    // read a foreign stream. So nobody joins until the queue was empty; who gets no Welcome subscribes again.
    if (!subscription)
      out_of_step_ = true;
    if (!subscription || bytes.size() != 1 + sizeof(StreamId::bytes)) {
      ++refused_;
    } else if (bytes[0] == 0) {
      unsubscribe(frame);
    } else if (subscribe(frame, may_join)) {
      joined(stream_id(topic_of(frame)));
    }
  }
  return true;
}

bool Publisher::claimed_by_another(const StreamId& stream, const Principal& who) const {
  const auto topic = topics_.find(stream);
  return topic != topics_.end() && topic->second.in_force && topic->second.claimed_by != who.name;
}

/// Must directly follow the recv of the frame: libzmq takes the peer from there.
bool Publisher::subscribe(zmq::message_t& frame, const MayJoin& may_join) {
  const std::string_view name = topic_of(frame);
  const StreamId stream = stream_id(name);
  const Principal who = sender_of(frame, authenticated_);
  Topic& topic = topics_[stream];
  const int descriptor = descriptor_of(frame);
  const uint64_t connection = connection_number(descriptor, frame);
  if (std::exchange(topic.askers[descriptor], connection) != connection)
    ++topic.peers;
  if (out_of_step_ || (!topic.in_force && in_force_ >= max_subscriptions_) || !may_join(stream, who)) {
    ++refused_;
    return false;
  }
  socket_.set(zmq::sockopt::subscribe, name);
  if (!std::exchange(topic.in_force, true)) {
    ++in_force_;
    topic.claimed_by = who.name;
  }
  return true;
}

/// A peer that is gone leaves each of its topics once, however often it asked, in frames that name no
/// connection; then all that counts is that the topic has one peer less.
void Publisher::unsubscribe(zmq::message_t& frame) {
  const std::string_view name = topic_of(frame);
  const auto entry = topics_.find(stream_id(name));
  if (entry == topics_.end())
    return;
  Topic& topic = entry->second;
  const int descriptor = descriptor_of(frame);
  const auto asker = topic.askers.find(descriptor);
  const bool asked = asker != topic.askers.end() && asker->second == connection_number(descriptor, frame);
  if (descriptor != kNoDescriptor && !asked)
    return;
  if (asked)
    topic.askers.erase(asker);
  if (!out_of_step_)
    socket_.set(zmq::sockopt::unsubscribe, name);
  if (--topic.peers > 0)
    return;
  in_force_ -= topic.in_force;
  topics_.erase(entry);
}

/// A file descriptor is used again after its connection, the number is not.
uint64_t Publisher::connection_number(int descriptor, zmq::message_t& frame) {
  Connection& connection = connections_[descriptor];
  if (connection.number == 0 || metadata_address(connection.frame) != metadata_address(frame)) {
    connection.frame.copy(frame);
    connection.number = ++last_connection_;
  }
  return connection.number;
}

} // namespace millrace
