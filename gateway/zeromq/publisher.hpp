#pragma once

// The fast path: one XPUB socket, one topic per stream. It drops for a subscriber that does not keep up,
// without telling anybody; seq and replay make good for that.

#include "gateway/zeromq/socket.hpp"
#include "messages/ids.hpp"

#include <functional>
#include <map>

namespace millrace {

/// The second frame of an event: msgpack [choice, seq, epoch].
struct EventHeader {
  int32_t choice = 0;
  int64_t seq = -1; // of events that are not numbered
  uint32_t epoch = 0;
};

/// Belongs to one thread.
class Publisher {
public:
  /// Binds; throws as bind_socket does. `queue` is what may wait for one subscriber, in events;
  /// `max_subscriptions` is how many topics may be in force, each for any number of peers.
  Publisher(zmq::context_t& context, const std::string& endpoint, int queue, size_t max_subscriptions,
            const SocketAccess& access = {});

  /// Sends [topic, header, body] to who subscribed to the stream. Never blocks; shares the bytes of the body.
  void publish(const StreamId& stream, const EventHeader& header, zmq::message_t& body);
  /// Reads up to `limit` waiting subscription frames and admits those whose topic is exactly one stream id;
  /// calls `joined` for each, when it is in force. False if nothing waits any more.
  bool admit(size_t limit, const std::function<void(const StreamId&)>& joined);

  zmq::socket_t& socket() { return socket_; }
  /// Frames that were not a subscription to one stream, or one too many.
  uint64_t refused() const { return refused_; }

private:
  /// The peers that asked for a topic, welcomed or not, since libzmq tells of the end of both alike.
  struct Topic {
    size_t peers = 0;
    bool in_force = false;          // counts against the cap
    std::map<int, uint64_t> askers; // connection by its file descriptor; some may have gone
  };
  struct Connection {
    zmq::message_t frame; // keeps its metadata, so that no other connection has them at the same address
    uint64_t number = 0;
  };

  bool subscribe(zmq::message_t& frame);
  void unsubscribe(zmq::message_t& frame);
  uint64_t connection_number(int descriptor, zmq::message_t& frame);

  zmq::socket_t socket_;
  size_t max_subscriptions_;
  size_t in_force_ = 0;
  std::map<StreamId, Topic> topics_;
  std::map<int, Connection> connections_; // the latest of each file descriptor
  uint64_t last_connection_ = 0;
  uint64_t refused_ = 0;
  bool out_of_step_ = false; // see admit()
};

} // namespace millrace
