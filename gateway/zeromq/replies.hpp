#pragma once

// The reliable path: one ROUTER socket with requests in, answers and replays out. What a client does not read
// waits for it in a bounded queue and delays nobody else.

#include "gateway/principal.hpp"
#include "gateway/streams.hpp"
#include "gateway/zeromq/socket.hpp"
#include "gateway/zeromq/unread_bytes.hpp"
#include "messages/error.hpp"
#include "messages/generation.hpp"
#include "messages/stream.hpp"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>

namespace millrace {

/// Where an answer goes: the latest connection of who asked.
struct Client {
  std::string routing_id;
  bool delimited = false; // a REQ socket, which wants an empty frame before the answer
};

/// A message as it came. More than one frame of content leaves `frame` empty.
struct Received {
  Client client;
  Principal who;
  std::optional<zmq::message_t> frame;
};

/// How a failure is told.
Rejected rejection(const StreamId& request, const Failure& failure);

/// Belongs to one thread.
class Replies {
public:
  /// Binds; throws as bind_socket does. The streams are read by replays and must outlive this. With a key in
  /// `access` clients are told apart, else everybody is the same nobody.
  Replies(zmq::context_t& context, const std::string& endpoint, Streams& streams,
          const SocketAccess& access = {});

  /// The next message, or nullopt if none waits.
  std::optional<Received> receive();

  /// Whether one more answer to this client can be kept. Who lets too many wait, or too large ones, is not served
  /// until it reads.
  bool has_room(const Client& client) const;
  /// Whether the answers that wait for all clients together take so much that no large one may join them. Then
  /// has_room() is strict, too, with those that have much waiting.
  bool crowded() const;
  /// Sends an answer at the next flush, behind what waits for this client already.
  void send(const Client& client, zmq::message_t frame);
  /// Likewise the events of a choice from a seq on (from 0: what stands before them, too), then the last
  /// event if the stream is over, then an Ack. If the stream leaves the log meanwhile, Rejected ends the
  /// replay.
  void send(const Client& client, const Replay& request);
  /// Sends what can go without waiting, a bounded piece for each client; returns the number of frames.
  size_t flush();
  /// Whether something is left for another flush.
  bool waiting() const { return !queues_.empty(); }

  enum class Sent { yes, not_now, client_gone };
  /// Sends a frame at once, unless something waits for the client or it has no room. The frame stays whole
  /// then.
  Sent try_send(const Client& client, zmq::message_t& frame);

  zmq::socket_t& socket() { return socket_; }
  /// Answers that were given up since their client had gone.
  uint64_t undeliverable() const { return undeliverable_; }

private:
  struct RunningReplay {
    Replay request;
    Cursor cursor = {};
    std::deque<LoggedEvent> read = {}; // and not sent yet
    bool begun = false;
    bool complete = false; // all of it was read
    int64_t first = 0;     // seq of the first event that was sent
    int64_t end = 0;       // where the stream was when the replay began; later events went over the topic
  };
  struct Item {
    bool delimited;
    std::variant<zmq::message_t, RunningReplay> content;
  };

  void begin(RunningReplay& replay, const StreamLog::Range& held);
  Sent send_item(const std::string& routing_id, Item& item, size_t& budget);
  Sent send_replay(const std::string& routing_id, bool delimited, RunningReplay& replay, size_t& budget);
  Sent send_budgeted(const std::string& routing_id, bool delimited, zmq::message_t& frame, size_t& budget);
  Sent send_frame(const std::string& routing_id, bool delimited, zmq::message_t& frame);

  zmq::socket_t socket_;
  const bool authenticated_;
  Streams& streams_;
  std::map<std::string, std::deque<Item>> queues_; // by routing id; none is empty
  UnreadBytes unread_;
  uint64_t undeliverable_ = 0;
};

} // namespace millrace
