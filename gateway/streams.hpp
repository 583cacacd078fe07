#pragma once

// All streams of a server, shared by its doors: who opened them, what was said, who waits for more. ZeroMQ
// and HTTP open, read and cancel through this one class, and so does the journal that lets streams outlive
// the process. Thread-safe; nothing here waits for a socket, a disk or a reader.

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

class Metrics;    // gateway/metrics.hpp
class RequestLog; // gateway/request_log.hpp

struct StreamsOptions {
  size_t stream_log_bytes = 8u << 20;           // of one stream; the oldest events go first
  size_t total_log_bytes = 256u << 20;          // of all streams; the oldest ended streams go first
  std::chrono::milliseconds log_ttl{300'000};   // of an ended stream
  std::filesystem::path log_dir = {};           // where streams outlive the process; empty: they do not
  std::string model_fingerprint = {};           // what a journal must have been written with to be resumed
  std::shared_ptr<Metrics> metrics = {};        // may be absent
  std::shared_ptr<RequestLog> request_log = {}; // may be absent
};

struct StreamsStats {
  uint64_t published = 0;         // events of the pipeline
  uint64_t unexpected_events = 0; // dropped: the stream has ended or never was
  uint64_t stale_events = 0;      // dropped: of an owner that lost the sequence
  uint64_t out_of_order_events = 0;
  uint64_t replayed = 0;         // numbered events that were read again
  uint64_t lagging = 0;          // readers whose next event had left the log
  uint64_t looked_through = 0;   // events that were read for snapshots
  uint64_t unsent = 0;           // not handed to the broadcasting door, which was too far behind
  size_t outbox = 0;             // events that wait for it
  size_t streams = 0, bytes = 0; // of the log
};

class Streams {
public:
  /// With a log_dir: reads what an earlier process left there. Throws std::system_error naming the path if
  /// the folder is not usable.
  Streams(const StreamsOptions& options, Backend backend);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// Hands the streams that an earlier process left unfinished to the backend, or ends them with an error if
  /// it cannot go on with them. Once, when the backend's events reach publish().
  void resume();

  struct Opened {
    StreamId stream;
    bool joined = false; // the same request was made before: this is its stream
  };
  /// Admits a request. A seed is drawn if it has none, and its deadline_ms becomes a moment, expires_at. A principal's name
  /// takes the place of its tenant. The same body again (under the same id, or with the
  /// same idempotency key of the same principal) joins the earlier stream; another body is a conflict.
  std::variant<Opened, Failure> open(Generate request, const Principal& who, const Origin& origin = {});
  /// unknown_request for streams that are not there and for those of others, alike.
  std::optional<Failure> cancel(const StreamId& stream, const Principal& who, const Origin& origin = {});
  bool may_read(const StreamId& stream, const Principal& who) const;

  /// What the pipeline says: logged, then handed to the doors. Any thread of the pipeline.
  void publish(const Event& event);

  // ---- readers ----

  using Lag = StreamLog::Lag;
  using Piece = StreamLog::Piece;
  /// The next events from a cursor on, about `max_bytes` of them but at least one, and moves the cursor. Who
  /// does not take them all goes on from a copy of the cursor: see advance().
  Piece read(const StreamId& stream, Cursor& cursor, size_t max_bytes);

  /// Told on a thread of the pipeline, under a lock: only take note, e.g. post to a loop. Many events may
  /// make one call.
  class Watcher {
  public:
    virtual ~Watcher() = default;
    virtual void wake(const StreamId& stream) = 0;
  };
  /// Wakes after each event of the stream and when it leaves the log, until unwatch; at once if there is no
  /// such stream. A stream may have many watchers.
  void watch(const StreamId& stream, std::shared_ptr<Watcher> watcher);
  void unwatch(const StreamId& stream, const Watcher* watcher);

  /// All events of all streams, in order, for the one door that broadcasts them. `signal` is called under a
  /// lock when the outbox becomes non-empty; an empty one detaches the door. What the door leaves waiting is
  /// bounded: beyond that it misses events, which the log has.
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

  ServerStats server_stats(int32_t max_requests) const; // the numbers of log and doors filled in
  /// What the doors tell about themselves, for server_stats().
  void tell_subscriptions(int64_t topics_in_force);
  void tell_http_connections(int64_t open);
  StreamsStats stats() const;

  /// Refuses new requests from now on ("draining").
  void drain();
  /// Drains, and when it returns the backend is not called any more. With a log_dir it takes no events any more, either:
  /// what still runs is left to the next process, which a pipeline that ends it now must not spoil.
  void detach();

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
