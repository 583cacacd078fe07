#pragma once

// The fast path: one XPUB socket, one topic per stream. A subscriber that reads gets a moment to catch up
// after a burst; for one that stalls it drops, without telling anybody; seq and replay make good for that.

#include "gateway/principal.hpp"
#include "gateway/stream_log.hpp"
#include "gateway/stream_table.hpp"
#include "gateway/zeromq/socket.hpp"

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>

namespace millrace {

/// Belongs to one thread.
class Publisher {
public:
  using Clock = std::chrono::steady_clock;
  /// How long a subscriber without room may read nothing, in a burst. libzmq tells of each half of a queue
  /// that was read: who reads more than that in this time loses nothing.
  static constexpr std::chrono::milliseconds kPatience{1'000};

  /// Binds; throws as bind_socket does. `queue` is what may wait for one subscriber, in events;
  /// `max_subscriptions` is how many topics may be in force, each for any number of peers. With a key in
  /// `access` peers are told apart, else everybody is the same nobody.
  Publisher(zmq::context_t& context, const std::string& endpoint, int queue, size_t max_subscriptions,
            const SocketAccess& access = {}, std::chrono::milliseconds patience = kPatience);

  /// Sends [topic, header, body] to who subscribed to the stream, or, in a burst, keeps it back until flush()
  /// if one of them has no room. Never blocks.
  void publish(LoggedEvent&& event);
  /// Sends what was kept back, as far as subscribers have room; who has none for too long loses events.
  /// Returns the number of events that left.
  size_t flush();
  /// Whether something is left for another flush.
  bool waiting() const { return !held_.empty(); }
  size_t held() const { return held_events_; }
  /// Sends all that was kept back; who has no room loses events.
  void flush_all();

  using MayJoin = std::function<bool(const StreamId&, const Principal&)>;
  /// Reads up to `limit` waiting subscription frames and admits those whose topic is exactly one stream id
  /// that the peer may join and that nobody else has claimed; calls `joined` for each, when it is in force.
  /// False if nothing waits any more.
  bool admit(size_t limit, const MayJoin& may_join, const std::function<void(const StreamId&)>& joined);
  /// Whether a topic is in force for others: who subscribes first has it, until all its peers have gone.
  bool claimed_by_another(const StreamId& stream, const Principal& who) const;

  zmq::socket_t& socket() { return socket_; }
  size_t in_force() const { return in_force_; }
  /// Frames that were not a subscription to one stream, or one that was not allowed, or one too many.
  uint64_t refused() const { return refused_; }
  /// How often a subscriber was given up that had no room.
  uint64_t overrun() const { return overrun_; }

private:
  /// The peers that asked for a topic, welcomed or not, since libzmq tells of the end of both alike.
  struct Topic {
    size_t peers = 0;
    bool in_force = false;          // counts against the cap
    std::string claimed_by;         // once it is in force
    std::map<int, uint64_t> askers; // connection by its file descriptor; some may have gone
  };
  struct Connection {
    zmq::message_t frame; // keeps its metadata, so that no other connection has them at the same address
    uint64_t number = 0;
  };
  /// Of a topic that waits for a subscriber.
  struct Held {
    std::deque<LoggedEvent> events;
    Clock::time_point deadline; // of the first one
  };

  bool in_burst() const;
  bool try_send(LoggedEvent& event);
  void send_or_drop(LoggedEvent& event);
  size_t send_some(Held& held, Clock::time_point now);
  void keep(Held& held, LoggedEvent&& event);
  void put_back(Held& held, LoggedEvent&& event);
  LoggedEvent take_first(Held& held);

  bool subscribe(zmq::message_t& frame, const MayJoin& may_join);
  void unsubscribe(zmq::message_t& frame);
  uint64_t connection_number(int descriptor, zmq::message_t& frame);

  zmq::socket_t socket_;
  const std::chrono::milliseconds patience_;
  const bool authenticated_;

  StreamTable<Held> held_;
  std::deque<StreamId> turns_; // of those in held_
  size_t held_events_ = 0, held_bytes_ = 0;
  const size_t quarter_;                   // of a subscriber's queue
  size_t sent_ = 0;                        // since the latest mark
  std::array<Clock::time_point, 4> marks_; // when the latest quarters of a queue were sent
  size_t next_mark_ = 0;                   // the oldest
  uint64_t overrun_ = 0;

  const size_t max_subscriptions_;
  size_t in_force_ = 0;
  StreamTable<Topic> topics_;
  std::map<int, Connection> connections_; // the latest of each file descriptor
  uint64_t last_connection_ = 0;
  uint64_t refused_ = 0;
  bool out_of_step_ = false; // see admit()
};

} // namespace millrace
