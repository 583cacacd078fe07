#include "gateway/zeromq/replies.hpp"

#include "messages/codec.hpp"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr int64_t kMaxIncomingFrame =
    kMaxFrameBytes + 1024;        // so that a frame just over the limit still gets an answer
constexpr int kReceiveQueue = 64; // messages of up to 8 MiB, for each client
constexpr int kSendQueue = 1'000;
constexpr size_t kMaxWaiting = 256; // answers and replays, for each client
constexpr size_t kPiece = 256;      // frames to one client before it is another's turn
constexpr int32_t kRetryAfterMs = 500;

template <Message M> zmq::message_t to_frame(const M& message) {
  const std::string bytes = encode(message);
  return zmq::message_t(bytes.data(), bytes.size());
}

} // namespace

Rejected rejection(const StreamId& request, const Failure& failure) {
  return {.request = request,
          .error = std::string(to_string(failure.code)),
          .field = failure.field,
          .message = failure.message,
          .retry_after_ms = failure.code == Error::busy ? kRetryAfterMs : 0};
}

Replies::Replies(zmq::context_t& context, const std::string& endpoint, StreamLog& log,
                 const SocketAccess& access)
    : socket_(bind_socket(
          context, zmq::socket_type::router, endpoint,
          {.max_frame_bytes = kMaxIncomingFrame, .receive_queue = kReceiveQueue, .send_queue = kSendQueue},
          access)),
      log_(log) {}

std::optional<Received> Replies::receive() {
  zmq::message_t part;
  if (!socket_.recv(part, zmq::recv_flags::dontwait))
    return std::nullopt;

  Received received{.client = {.routing_id = part.to_string()}, .frame = {}};
  size_t frames = 0;
  bool more = part.more();
  for (bool first = true; more; first = false) {
    (void)socket_.recv(part); // the parts of a message arrive together
    more = part.more();
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
  return queue == queues_.end() || queue->second.size() < kMaxWaiting;
}

void Replies::send(const Client& client, zmq::message_t frame) {
  queues_[client.routing_id].push_back({client.delimited, std::move(frame)});
}

void Replies::send(const Client& client, const Replay& request) {
  queues_[client.routing_id].push_back({client.delimited, RunningReplay{.request = request}});
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

Replies::Sent Replies::send_item(const std::string& routing_id, Item& item, size_t& budget) {
  if (auto* replay = std::get_if<RunningReplay>(&item.content))
    return send_replay(routing_id, item.delimited, *replay, budget);
  zmq::message_t reference;
  reference.copy(std::get<zmq::message_t>(item.content));
  return send_frame(routing_id, item.delimited, std::move(reference), budget);
}

Replies::Sent Replies::send_replay(const std::string& routing_id, bool delimited, RunningReplay& replay,
                                   size_t& budget) {
  const auto& [request, choice, from_seq] = replay.request;
  for (;;) {
    const auto held = log_.held(request, choice);
    if (!held) {
      const Failure gone{Error::unknown_request, "request", "the stream has left the log"};
      return send_frame(routing_id, delimited, to_frame(rejection(request, gone)), budget);
    }
    if (!replay.begun) {
      replay.begun = true;
      replay.end = held->next;
      replay.first = replay.seq = std::clamp(from_seq, held->first, held->next);
    }
    // What the log dropped since the last piece is skipped: the reader sees the gap.
    replay.seq = std::max(replay.seq, std::min(held->first, replay.end));

    if (replay.seq < replay.end) {
      const Sent sent = send_frame(routing_id, delimited, log_.event(request, choice, replay.seq), budget);
      if (sent != Sent::yes)
        return sent;
      ++replay.seq;
      continue;
    }
    if (auto last = log_.last_event(request); last && !replay.last_sent && replay.end == held->next) {
      const Sent sent = send_frame(routing_id, delimited, std::move(*last), budget);
      if (sent != Sent::yes)
        return sent;
      replay.last_sent = true;
      continue;
    }
    const Ack ack{.request = request,
                  .of = std::string(Replay::kType),
                  .from_seq = replay.first,
                  .next_seq = replay.end};
    return send_frame(routing_id, delimited, to_frame(ack), budget);
  }
}

Replies::Sent Replies::send_frame(const std::string& routing_id, bool delimited, zmq::message_t frame,
                                  size_t& budget) {
  if (budget == 0)
    return Sent::not_now;
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
  --budget;
  return Sent::yes;
}

} // namespace millrace
