#pragma once

// The edge: the streams of a server and the ZeroMQ door to them. Other doors are opened beside it, on the
// same streams.

#include "gateway/backend.hpp"
#include "gateway/streams.hpp"
#include "gateway/zeromq/curve.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace millrace {

struct GatewayOptions {
  std::string requests = "tcp://127.0.0.1:5555"; // ROUTER; port 0 or * picks a free one
  std::string events = "tcp://127.0.0.1:5556";   // XPUB
  size_t stream_log_bytes = 8u << 20;            // of one stream; the oldest events go first
  size_t total_log_bytes = 256u << 20;           // of all streams; the oldest ended streams go first
  std::chrono::milliseconds log_ttl{300'000};    // of an ended stream
  std::chrono::milliseconds heartbeat{2'000};    // idle streams
  size_t max_subscriptions = 100'000;            // topics in force, each for any number of peers
  int subscriber_queue = 10'000;                 // events that wait for one subscriber; beyond it loses some
  std::chrono::milliseconds follow_silence{300'000}; // of a client that reads nothing of what it follows
  CurveOptions curve = {};                       // keys of both sockets
  bool allow_remote = false;                     // endpoints that are not loopback; with keys only
  std::filesystem::path log_dir = {};            // where streams outlive the process; empty: they do not
  std::string model_fingerprint = {};            // what a stream must have begun with to be resumed
  std::shared_ptr<Metrics> metrics = {};         // may be absent
  std::shared_ptr<RequestLog> request_log = {};  // may be absent
};

/// What happened since the start. Odd things are counted and not printed, since a client could fill a disk.
struct GatewayStats {
  uint64_t requests = 0;              // messages of clients
  uint64_t refused_requests = 0;      // answered with Rejected
  uint64_t unanswered_requests = 0;   // of clients that do not read their answers
  uint64_t undeliverable_replies = 0; // to clients that had gone
  uint64_t refused_subscriptions = 0; // not to exactly one stream id, not allowed, or too many
  uint64_t overrun_subscribers = 0;   // times that one had no room for an event
  uint64_t published = 0;             // events of the pipeline
  uint64_t sent = 0;                  // of them, those that have left for the subscribers by now
  uint64_t unsent = 0;                // and those that never will, since the door was too far behind
  uint64_t unexpected_events = 0;     // not published: the stream has ended or never was
  uint64_t stale_events = 0;          // not published: of an owner that lost the sequence
  uint64_t out_of_order_events = 0;   // not published: not the next of their choice
  size_t log_streams = 0, log_bytes = 0;
};

class Gateway {
public:
  /// Binds and starts the thread. Throws std::system_error naming the endpoint or the folder. Refuses
  /// endpoints that are not loopback or ipc, unless they are allowed and have keys.
  Gateway(const GatewayOptions& options, Backend backend);
  /// Closes the sockets (what is queued for subscribers gets 200 ms to leave) and ends the thread.
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  /// The endpoints in use, with the ports that were picked.
  std::string requests_endpoint() const;
  std::string events_endpoint() const;

  /// For the other doors.
  Streams& streams();
  /// Goes on with what an earlier process left in log_dir: see Streams::resume().
  void resume();
  /// An event of the pipeline: logged, then published. Any thread; never blocks on a socket.
  void publish(const Event& event);
  /// Refuses new requests from now on ("draining"). Any thread.
  void drain();
  /// Drains, and when it returns the backend is not called any more, so that the pipeline may go first. What
  /// it publishes until then still leaves. Any thread but those of doors.
  void detach();
  /// Any thread.
  GatewayStats stats() const;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
