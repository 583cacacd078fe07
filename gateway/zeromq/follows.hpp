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

/// Belongs to one thread.
class Follows {
public:
  Follows(Streams& streams, Replies& replies) : streams_(streams), replies_(replies) {}

  /// Begins to follow, in place of an earlier follow of the same stream by the client. Its Ack is the
  /// caller's and goes first: nothing is sent while something waits for the client. Refuses more than a
  /// client, or all together, may have.
  std::optional<Failure> begin(const Client& client, const Follow& request);
  /// Gives credit for what was read.
  void acknowledge(const Client& client, const Read& request);
  /// There is something new on a stream, or it has left the log.
  void note(const StreamId& stream);
  /// Sends what may go, a bounded piece for each follower; returns the number of frames.
  size_t pump();
  /// Tells those whose stream has left the log.
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
  enum class Step { idle, again, stalled, over };

  Step step(const StreamId& stream, Follower& follower, size_t& frames);
  void queue(const Key& key, Follower& follower);
  void erase(const Key& key);

  Streams& streams_;
  Replies& replies_;
  std::map<Key, Follower> followers_;
  StreamTable<std::set<std::string>> readers_; // routing ids of those who follow a stream
  std::map<std::string, size_t> clients_;      // how many streams each follows
  std::deque<Key> ready_;
  std::multimap<Clock::time_point, Key> stalled_; // by when it is tried again whether their client has room
};

} // namespace millrace
