#pragma once

// Readers that are sent whole streams over the ROUTER at their own pace: what they have credit for leaves,
// the rest stays in the log. One that stalls costs its cursor and nothing else.

#include "gateway/zeromq/replies.hpp"

#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace millrace {

struct FollowLimits {
  size_t follows = 20'000; // of all clients
  size_t of_client = 1'024;
  /// A reader without credit that has sent nothing for so long is taken for gone.
  std::chrono::milliseconds silence{300'000};
  std::chrono::milliseconds silence_when_full{10'000}; // likewise where others wait for a place
};

/// Belongs to one thread.
class Follows {
public:
  Follows(Streams& streams, Replies& replies, const FollowLimits& limits = {})
      : limits_(limits), streams_(streams), replies_(replies) {}

  /// The client has sent something, whatever it is.
  void hear(const Client& client);
  /// Begins to follow, in place of an earlier follow of the same stream by the client. Its Ack is the
  /// caller's and goes first: nothing is sent while something waits for the client. Refuses more than a
  /// client, or all together, may have, unless others make room that are taken for gone.
  std::optional<Failure> begin(const Client& client, const Follow& request);
  /// Gives credit for what was read.
  void acknowledge(const Client& client, const Read& request);
  /// There is something new on a stream, or it has left the log.
  void note(const StreamId& stream);
  /// Sends what may go, a bounded piece for each follower; returns the number of frames.
  size_t pump();
  /// Tells those whose stream has left the log, and those that are taken for gone.
  void sweep();

  /// Whether the next pump has something to do: for clients that take it, or only for such that do not.
  bool ready() const { return !ready_.empty(); }
  bool stalled() const { return !stalled_.empty(); }
  size_t size() const { return followers_.size(); }

private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, StreamId>; // routing id and stream
  struct Follower {
    Client client;
    Cursor cursor;
    std::vector<int64_t> acknowledged; // of each choice
    int64_t window = 0;
    bool queued = false;                     // in ready_ or stalled_
    std::chrono::milliseconds stalled_for{}; // how long to the next try, if the last one found no room

    int64_t credit() const;
  };
  struct Reader {
    size_t follows = 0;
    Clock::time_point heard;
  };
  enum class Step { idle, again, stalled, over, client_gone };

  Step step(const StreamId& stream, Follower& follower, size_t& frames);
  void queue(const Key& key, Follower& follower);
  void erase(const Key& key);
  void forget(const std::string& routing_id);
  bool make_room();
  void end_silent(std::chrono::milliseconds silence, size_t enough);
  void end_without_credit(const std::string& routing_id);

  const FollowLimits limits_;
  Streams& streams_;
  Replies& replies_;
  std::map<Key, Follower> followers_;
  StreamTable<std::set<std::string>> readers_; // routing ids of those who follow a stream
  std::map<std::string, Reader> clients_;      // that follow something
  std::deque<Key> ready_;
  std::multimap<Clock::time_point, Key> stalled_; // by when it is tried again whether their client has room
  Clock::time_point next_sweep_, next_making_room_; // for silent clients
};

} // namespace millrace
