#include "gateway/zeromq/replies.hpp"

#include "gateway/event_frame.hpp"
#include "messages/codec.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace millrace {
namespace {

constexpr int64_t kMaxIncomingFrame =
    kMaxFrameBytes + 1024;        // so that a frame just over the limit still gets an answer
constexpr int kReceiveQueue = 64; // messages of up to 8 MiB, for each client
constexpr int kSendQueue = 1'000;
constexpr size_t kMaxWaiting = 256;      // answers and replays, for each client
constexpr size_t kMaxUnread = 8u << 20;  // bytes of answers, likewise; one more may go beyond
constexpr size_t kMaxAllUnread = 128u << 20;  // for all clients
constexpr size_t kUnreadInACrowd = 64u << 10; // for each, while that is exceeded
constexpr size_t kPiece = 256;           // frames to one client before it is another's turn
constexpr size_t kReadBytes = 64u << 10; // of a replay, taken from the log at once
constexpr int64_t kBeyond = std::numeric_limits<int64_t>::max();
constexpr size_t kNoPreamble = std::numeric_limits<size_t>::max();
constexpr int32_t kRetryAfterMs = 500; // where who refuses can't tell

} // namespace

Rejected rejection(const StreamId& request, const Failure& failure) {
  int32_t retry_after_ms = failure.retry_after_ms;
  if (failure.code == Error::busy && retry_after_ms == 0)
    retry_after_ms = kRetryAfterMs;
  return {.request = request,
          .error = std::string(to_string(failure.code)),
          .field = failure.field,
          .message = failure.message,
          .retry_after_ms = retry_after_ms};
}

Replies::Replies(zmq::context_t& context, const std::string& endpoint, Streams& streams,
                 const SocketAccess& access)
    : socket_(bind_socket(
          context, zmq::socket_type::router, endpoint,
          {.max_frame_bytes = kMaxIncomingFrame, .receive_queue = kReceiveQueue, .send_queue = kSendQueue},
          access)),
      authenticated_(!access.secret_key.empty()), streams_(streams) {}

std::optional<Received> Replies::receive() {
  zmq::message_t part;
  if (!socket_.recv(part, zmq::recv_flags::dontwait))
    return std::nullopt;

  Received received{.client = {.routing_id = part.to_string()}, .who = {}, .frame = {}};
  size_t frames = 0;
  bool more = part.more();
  for (bool first = true; more; first = false) {
    (void)socket_.recv(part); // the parts of a message arrive together
    more = part.more();
    received.who = sender_of(part, authenticated_); // the same for all parts
    if (first && more && part.size() == 0)
      received.client.delimited = true;
    else if (++frames == 1)
      received.frame = std::move(part);
    else
      received.frame.reset();
  }
  return received;
}

bool Replies::has_room(const Client& client) const {
  const auto queue = queues_.find(client.routing_id);
  if (queue != queues_.end() && queue->second.size() >= kMaxWaiting)
    return false;
  return unread_.of(client.routing_id) < (crowded() ? kUnreadInACrowd : kMaxUnread);
}

bool Replies::crowded() const {
  return unread_.of_all() >= kMaxAllUnread;
}

void Replies::send(const Client& client, zmq::message_t frame) {
  queues_[client.routing_id].push_back({client.delimited, unread_.count(client.routing_id, std::move(frame))});
}

void Replies::send(const Client& client, const Replay& request) {
  queues_[client.routing_id].push_back({client.delimited, RunningReplay{.request = request, .cursor = {}}});
}

size_t Replies::flush() {
  size_t total = 0;
  for (auto entry = queues_.begin(); entry != queues_.end();) {
    auto& [routing_id, queue] = *entry;
    size_t budget = kPiece;
    Sent sent = Sent::yes;
    while (sent == Sent::yes && !queue.empty()) {
      sent = send_item(routing_id, queue.front(), budget);
      if (sent == Sent::yes)
        queue.pop_front();
    }
    if (sent == Sent::client_gone) {
      undeliverable_ += queue.size();
      queue.clear();
    }
    total += kPiece - budget;
    entry = queue.empty() ? queues_.erase(entry) : std::next(entry);
  }
  return total;
}

Replies::Sent Replies::try_send(const Client& client, zmq::message_t& frame) {
  if (queues_.contains(client.routing_id))
    return Sent::not_now;
  return send_frame(client.routing_id, client.delimited, frame);
}

Replies::Sent Replies::send_item(const std::string& routing_id, Item& item, size_t& budget) {
  if (auto* replay = std::get_if<RunningReplay>(&item.content))
    return send_replay(routing_id, item.delimited, *replay, budget);
  return send_budgeted(routing_id, item.delimited, std::get<zmq::message_t>(item.content), budget);
}

Replies::Sent Replies::send_replay(const std::string& routing_id, bool delimited, RunningReplay& replay,
                                   size_t& budget) {
  const auto& [request, choice, from_seq] = replay.request;
  const auto send = [&](zmq::message_t frame) { return send_budgeted(routing_id, delimited, frame, budget); };
  for (;;) {
    for (; !replay.read.empty(); replay.read.pop_front())
      if (const Sent sent = send_budgeted(routing_id, delimited, replay.read.front().body, budget);
          sent != Sent::yes)
        return sent;

    const auto held = streams_.held(request, choice);
    if (!held)
      return send(
          to_frame(rejection(request, {Error::unknown_request, "request", "the stream has left the log"})));
    if (!replay.begun)
      begin(replay, *held);
    if (replay.complete)
      break;
    // What the log dropped since the last piece is skipped: the reader sees the gap.
    Streams::Piece piece = streams_.read(request, replay.cursor, kReadBytes);
    for (LoggedEvent& event : piece.events)
      if (event.last ? replay.end == held->next : event.sequence.choice == choice && event.seq < replay.end)
        replay.read.push_back(std::move(event));
    replay.complete = !piece.more || replay.cursor.next[choice] > replay.end;
  }
  Ack ack;
  ack.request = request;
  ack.of = Replay::kType;
  ack.from_seq = replay.first;
  ack.next_seq = replay.end;
  return send(to_frame(ack));
}

/// Its cursor stands beyond the end of all other choices.
void Replies::begin(RunningReplay& replay, const StreamLog::Range& held) {
  replay.begun = true;
  replay.end = held.next;
  replay.first = std::clamp(replay.request.from_seq, held.first, held.next);
  replay.cursor.next.assign(streams_.next_seqs(replay.request.request).size(), kBeyond);
  replay.cursor.next.at(replay.request.choice) = replay.first;
  replay.cursor.preamble = replay.request.from_seq > 0 ? kNoPreamble : 0;
}

Replies::Sent Replies::send_budgeted(const std::string& routing_id, bool delimited, zmq::message_t& frame,
                                     size_t& budget) {
  if (budget == 0)
    return Sent::not_now;
  const Sent sent = send_frame(routing_id, delimited, frame);
  budget -= sent == Sent::yes;
  return sent;
}

Replies::Sent Replies::send_frame(const std::string& routing_id, bool delimited, zmq::message_t& frame) {
  try {
    // Only the first part can fail: with it the ROUTER has chosen the peer and found room for a message.
    constexpr auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    if (!socket_.send(zmq::buffer(routing_id), more))
      return Sent::not_now;
    if (delimited)
      socket_.send(zmq::message_t(), more);
    socket_.send(frame, zmq::send_flags::dontwait);
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH)
      throw;
    return Sent::client_gone;
  }
  return Sent::yes;
}

} // namespace millrace
