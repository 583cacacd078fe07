#pragma once

// What was said on each stream, for as long as somebody may ask for it again. The single source for replay:
// sockets drop. Knows no sockets and no clock; a frame is a reference to bytes that the log, the queues of
// all subscribers and all replays share.

#include "gateway/stream_table.hpp"
#include "messages/sequence.hpp"

#include <zmq.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <vector>

namespace millrace {

/// An event as a door sends it. The body is msgpack and shared: with the log, with all readers.
struct LoggedEvent {
  SequenceId sequence;
  int64_t seq = -1;  // of events that are not numbered
  bool last = false; // Done or Rejected: ends the stream
  size_t place = 0;  // of an event that was read from the preamble: where its reader goes on
  zmq::message_t body;
};

/// Where a reader stands in a stream.
struct Cursor {
  std::vector<int64_t> next = {}; // of each choice; missing ones stand at 0
  size_t preamble = 0; // place in the preamble (Started, PromptLogprobs): what comes before was read
  bool ended = false;  // the last event was read
  std::vector<int64_t> live_from = {}; // set by the first read: what came before was told already
};

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

  struct Lag {
    int32_t choice = 0;
    int64_t wanted = 0, held = 0;
  };
  /// What one read brings.
  struct Piece {
    std::vector<LoggedEvent> events; // preamble, then numbered ones, then the last one
    std::optional<Lag> lag; // the cursor jumped before these: events between wanted and held are gone
    bool more = false;      // the budget ended before the log did
    bool known = false;     // false: there is no such stream (any more)
    size_t again = 0;       // numbered events that were told before the reader came
  };

  /// `erased` hears of each stream that leaves the log by itself; it must not call back.
  explicit StreamLog(const Limits& limits, std::function<void(const StreamId&)> erased = {})
      : limits_(limits), erased_(std::move(erased)) {}

  /// Begins a stream; false if the id is in use by a live stream or by an ended one that is still held, or if the
  /// bookkeeping of live streams leaves no room. `overhead` is what others keep for the stream, charged to it.
  bool open(const StreamId& request, int32_t choices, Time now, size_t overhead = 0);
  /// Takes a stream out again, whatever its state. `erased` is not told.
  void remove(const StreamId& request);
  /// Whether an unnumbered event of this owner may pass. A higher epoch is remembered.
  Verdict admit(const SequenceId& sequence, Time now);
  /// Likewise for an event of the preamble: a Started takes the place of the earlier one of its choice and
  /// is never dropped; log-probs of the prompt are kept as numbered events are.
  Verdict start(const SequenceId& sequence, zmq::message_t frame, Time now);
  Verdict keep(const SequenceId& sequence, zmq::message_t frame, Time now);
  /// Takes the next numbered event of a choice; `last` closes the choice.
  Verdict append(const SequenceId& sequence, int64_t seq, bool last, zmq::message_t&& frame, Time now);
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
  /// The next events from a cursor on, about `max_bytes` of them but at least one; moves the cursor. Choices
  /// take turns, so that none waits for the end of another. The last event comes behind all numbered ones.
  Piece read(const StreamId& request, Cursor& cursor, size_t max_bytes);
  /// Live streams without an event since now - silence; asking counts as an event.
  std::vector<StreamId> idle(Time now, std::chrono::milliseconds silence);

  /// What the log is charged with, bookkeeping included.
  size_t bytes() const { return bytes_; }
  size_t size() const { return streams_.size(); }

private:
  struct Frame {
    zmq::message_t body;
    uint32_t epoch;
  };
  struct Choice {
    int64_t first = 0; // seq of frames.front()
    uint32_t epoch = 0;
    bool closed = false;
    std::deque<Frame> frames;
    int64_t next() const { return first + static_cast<int64_t>(frames.size()); }
  };
  struct Preamble {
    size_t place; // ascending; those of dropped ones are not used again
    SequenceId sequence;
    bool started; // else log-probs of the prompt
    zmq::message_t body;
  };
  struct Stream {
    std::vector<Choice> choices;
    std::deque<Preamble> preamble;
    size_t next_place = 0;
    std::deque<int32_t> arrivals; // the choice of each held frame, or kPrompt, oldest first
    std::optional<zmq::message_t> last;
    size_t bytes = 0;
    size_t bookkeeping = 0; // of them, what it was opened with: not given away while it lives
    Time touched;
    std::list<StreamId>::iterator place; // in live_ or ended_
  };
  using Streams = StreamTable<Stream>;
  static constexpr int32_t kPrompt = -1;

  struct Found {
    Verdict verdict;
    Stream* stream = nullptr;
    Choice* choice = nullptr;
  };
  Found find(const SequenceId& sequence, Time now);
  void charge(Stream& stream, size_t bytes);
  void release(Stream& stream, size_t bytes);
  void drop_oldest(Stream& stream);
  void fit(Stream& stream);
  void erase(Streams::iterator stream);
  void make_room();
  static void read_preamble(Stream& stream, Cursor& cursor, size_t& budget, Piece& piece);
  static void read_numbered(Stream& stream, Cursor& cursor, size_t& budget, Piece& piece);

  Limits limits_;
  std::function<void(const StreamId&)> erased_;
  size_t bytes_ = 0;
  size_t live_bookkeeping_ = 0;
  Streams streams_;
  std::list<StreamId> live_;  // the one that was silent longest first
  std::list<StreamId> ended_; // the oldest end first
};

/// Moves a cursor over an event that it read.
void advance(Cursor& cursor, const LoggedEvent& event);

} // namespace millrace
