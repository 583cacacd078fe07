#pragma once

// ZeroMQ in, ZeroMQ out: one thread that owns all sockets of the door. The protocol is in
// messages/PROTOCOL.md.

#include "gateway/streams.hpp"
#include "gateway/zeromq/curve.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace millrace {

struct ZeroMqDoorOptions {
  std::string requests = "tcp://127.0.0.1:5555"; // ROUTER; port 0 or * picks a free one
  std::string events = "tcp://127.0.0.1:5556";   // XPUB
  std::chrono::milliseconds heartbeat{2'000};    // idle streams
  std::chrono::milliseconds log_ttl{300'000}; // how long ended streams are kept: no need to look more often
  size_t max_subscriptions = 100'000;         // topics in force, each for any number of peers
  int subscriber_queue = 10'000;              // events that wait for one subscriber; beyond it loses some
  std::chrono::milliseconds follow_silence{300'000}; // of a client that reads nothing of what it follows
  CurveOptions curve = {};                    // keys of both sockets
  bool allow_remote = false;                  // endpoints that are not loopback; with keys only
};

/// Odd things are counted and not printed, since a client could fill a disk.
struct ZeroMqDoorStats {
  uint64_t requests = 0;              // messages of clients
  uint64_t refused_requests = 0;      // answered with Rejected
  uint64_t unanswered_requests = 0;   // of clients that do not read their answers
  uint64_t undeliverable_replies = 0; // to clients that had gone
  uint64_t refused_subscriptions = 0; // not to exactly one stream id, not allowed, or too many
  uint64_t overrun_subscribers = 0;   // times that one had no room for an event
  uint64_t sent = 0;                  // events of the outbox that were sent, or dropped, on their topic
  size_t follows = 0, subscriptions = 0;
};

class ZeroMqDoor {
public:
  /// Binds and starts the thread. Throws std::system_error naming the endpoint. The streams must outlive it.
  ZeroMqDoor(const ZeroMqDoorOptions& options, Streams& streams);
  /// Closes the sockets (what is queued for subscribers gets 200 ms to leave) and ends the thread.
  ~ZeroMqDoor();
  ZeroMqDoor(const ZeroMqDoor&) = delete;
  ZeroMqDoor& operator=(const ZeroMqDoor&) = delete;

  /// The endpoints in use, with the ports that were picked.
  std::string requests_endpoint() const;
  std::string events_endpoint() const;
  /// Any thread.
  ZeroMqDoorStats stats() const;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
