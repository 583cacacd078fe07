#pragma once

// All streams of a server, shared by its doors: who opened them, what was said, who waits for more. ZeroMQ and
// HTTP open, read and cancel through this one class, and so does the journal that lets streams outlive the
// process. Thread-safe; nothing here waits for a socket, a disk or a reader.

#include "gateway/backend.hpp"
#include "gateway/principal.hpp"
#include "gateway/stream_log.hpp"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace millrace {

class Metrics; // gateway/metrics.hpp

struct StreamsOptions {
  size_t stream_log_bytes = 8u << 20;        // of one stream; the oldest events go first
  size_t total_log_bytes = 256u << 20;       // of all streams; the oldest ended streams go first
  std::chrono::milliseconds log_ttl{300'000}; // of an ended stream
  std::filesystem::path log_dir = {};        // where streams outlive the process; empty: they do not
  std::string model_fingerprint = {};        // what a journal must have been written with to be resumed
  std::shared_ptr<Metrics> metrics = {};     // may be absent
};

/// An event as a door sends it. The body is msgpack and shared: with the log, with all readers.
struct LoggedEvent {
  SequenceId sequence;
  int64_t seq = -1;  // of events that are not numbered
  bool last = false; // Done or Rejected: ends the stream
  zmq::message_t body;
};

/// Where a reader stands in a stream.
struct Cursor {
  std::vector<int64_t> next; // of each choice; missing ones stand at 0
  size_t preamble = 0;       // events of the preamble (Started, PromptLogprobs) that were read
  bool ended = false;        // the last event was read
};

struct StreamsStats {
  uint64_t published = 0;         // events of the pipeline
  uint64_t unexpected_events = 0; // dropped: the stream has ended or never was
  uint64_t stale_events = 0;      // dropped: of an owner that lost the sequence
  uint64_t out_of_order_events = 0;
  uint64_t replayed = 0;          // numbered events that were read again
  uint64_t lagging = 0;           // readers whose next event had left the log
  size_t streams = 0, bytes = 0;  // of the log
};

class Streams {
public:
  /// With a log_dir: reads what an earlier process left there, resumes what had not ended, and throws
  /// std::system_error naming the path if the folder is not usable.
  Streams(const StreamsOptions& options, Backend backend);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  struct Opened {
    StreamId stream;
    bool joined = false; // the same request was made before: this is its stream
  };
  /// Admits a request. A seed is drawn if it has none. The same body again (under the same id, or with the same
  /// idempotency key of the same principal) joins the earlier stream; another body is a conflict.
  std::variant<Opened, Failure> open(Generate request, const Principal& who);
  /// unknown_request for streams that are not there and for those of others, alike.
  std::optional<Failure> cancel(const StreamId& stream, const Principal& who);
  bool may_read(const StreamId& stream, const Principal& who) const;

  /// What the pipeline says: logged, then handed to the doors. Any thread of the pipeline.
  void publish(const Event& event);

  // ---- readers ----

  struct Lag {
    int32_t choice = 0;
    int64_t wanted = 0, held = 0;
  };
  struct Piece {
    std::vector<LoggedEvent> events; // preamble, then numbered ones, then the last one
    std::optional<Lag> lag;          // the cursor jumped: events between wanted and held are gone
    bool more = false;               // the budget ended before the log did
    bool known = false;              // false: there is no such stream (any more)
  };
  /// The next events from a cursor on, about `max_bytes` of them but at least one, and moves the cursor.
  Piece read(const StreamId& stream, Cursor& cursor, size_t max_bytes);

  /// Told on a thread of the pipeline, under a lock: only take note, e.g. post to a loop. Many events may make
  /// one call.
  class Watcher {
  public:
    virtual ~Watcher() = default;
    virtual void wake(const StreamId& stream) = 0;
  };
  /// Wakes after each event of the stream until unwatch. A stream may have many watchers.
  void watch(const StreamId& stream, std::shared_ptr<Watcher> watcher);
  void unwatch(const StreamId& stream, const Watcher* watcher);

  /// All events of all streams, in order, for the one door that broadcasts them. `signal` is called when the
  /// outbox becomes non-empty.
  void attach_outbox(std::function<void()> signal);
  /// Swaps the outbox with an empty vector.
  void take_outbox(std::vector<LoggedEvent>& events);

  // ---- of the log ----

  bool contains(const StreamId& stream) const;
  bool live(const StreamId& stream) const;
  std::vector<int64_t> next_seqs(const StreamId& stream) const;
  std::optional<StreamLog::Range> held(const StreamId& stream, int32_t choice) const;
  std::optional<Snapshot> snapshot(const StreamId& stream) const;
  std::vector<StreamId> idle(std::chrono::milliseconds silence);
  /// Forgets what is too old; a door's loop calls it now and then.
  void expire();

  ServerStats server_stats(int32_t max_requests) const; // the log's numbers filled in
  StreamsStats stats() const;

  /// Refuses new requests from now on ("draining").
  void drain();
  /// Drains, and when it returns the backend is not called any more.
  void detach();

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
