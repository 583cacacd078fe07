#pragma once

// What was said on each stream, for as long as somebody may ask for it again. The single source for replay:
// sockets drop. Knows no sockets and no clock; a frame is a reference to bytes that the log, the queues of
// all subscribers and all replays share.

#include "messages/sequence.hpp"

#include <zmq.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <vector>

namespace millrace {

class StreamLog {
public:
  using Time = std::chrono::steady_clock::time_point;

  struct Limits {
    size_t stream_bytes;           // of one stream's events; its oldest go first
    size_t total_bytes;            // of all streams; ended ones go first, the oldest end leading
    std::chrono::milliseconds ttl; // of an ended stream
  };

  enum class Verdict {
    taken,
    unknown_stream, // never opened, ended, or gone
    stale_epoch,    // of an owner that lost the sequence
    out_of_order,   // not the next seq of its choice, or after its end
  };

  /// The events of a choice that are held: first <= seq < next.
  struct Range {
    int64_t first = 0;
    int64_t next = 0;
  };

  explicit StreamLog(const Limits& limits) : limits_(limits) {}

  /// Begins a stream; false if the id is in use by a live stream or by an ended one that is still held.
  bool open(const StreamId& request, int32_t choices, Time now);
  /// Whether an unnumbered event of this owner may pass. A higher epoch is remembered.
  Verdict admit(const SequenceId& sequence, Time now);
  /// Takes the next numbered event of a choice; `last` closes the choice.
  Verdict append(const SequenceId& sequence, int64_t seq, bool last, zmq::message_t frame, Time now);
  /// Takes the last event of the stream, which is held apart and outlives the numbered ones.
  Verdict end(const StreamId& request, zmq::message_t frame, Time now);
  /// Forgets ended streams whose time is over.
  void expire(Time now);

  bool contains(const StreamId& request) const { return streams_.contains(request); }
  bool live(const StreamId& request) const;
  /// The next seq of each choice; empty if the stream is unknown.
  std::vector<int64_t> next_seqs(const StreamId& request) const;
  /// nullopt if there is no such stream or choice.
  std::optional<Range> held(const StreamId& request, int32_t choice) const;
  /// Another reference to an event inside held().
  zmq::message_t event(const StreamId& request, int32_t choice, int64_t seq);
  /// Another reference to the last event; nullopt while the stream is live or if it is unknown.
  std::optional<zmq::message_t> last_event(const StreamId& request);
  /// Live streams without an event since now - silence; asking counts as an event.
  std::vector<StreamId> idle(Time now, std::chrono::milliseconds silence);

  /// What the log is charged with, bookkeeping included.
  size_t bytes() const { return bytes_; }
  size_t size() const { return streams_.size(); }

private:
  struct Choice {
    int64_t first = 0; // seq of frames.front()
    uint32_t epoch = 0;
    bool closed = false;
    std::deque<zmq::message_t> frames;
    int64_t next() const { return first + static_cast<int64_t>(frames.size()); }
  };
  struct Stream {
    std::vector<Choice> choices;
    std::deque<int32_t> arrivals; // the choice of each held frame, oldest first
    std::optional<zmq::message_t> last;
    size_t bytes = 0;
    Time touched;
    std::list<StreamId>::iterator place; // in live_ or ended_
  };
  // Ordered, because clients choose the ids: a hash of bytes they know could be made to collide.
  using Streams = std::map<StreamId, Stream>;

  Choice* find_choice(const SequenceId& sequence, Verdict& verdict);
  void touch(Stream& stream, Time now);
  void charge(Stream& stream, size_t bytes);
  void drop_oldest(Stream& stream);
  void erase(Streams::iterator stream);
  void make_room();

  Limits limits_;
  size_t bytes_ = 0;
  Streams streams_;
  std::list<StreamId> live_;  // the one that was silent longest first
  std::list<StreamId> ended_; // the oldest end first
};

} // namespace millrace
