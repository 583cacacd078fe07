#pragma once

#include "gateway/http/api/call.hpp"
#include "gateway/streams.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace millrace::http {

/// Reads one stream on the loop's thread, at the pace of whoever takes the events, and tells when there may be more.
class StreamReader final : public Streams::Watcher, public std::enable_shared_from_this<StreamReader> {
public:
  StreamReader(Streams& streams, const StreamId& stream, Cursor from, std::shared_ptr<Call> call)
      : streams_(streams), stream_(stream), cursor_(std::move(from)), call_(std::move(call)) {}

  /// Begins to watch: `ready` is called on the loop's thread from now on, first of all soon.
  void start(std::function<void()> ready);
  /// No more calls. Must be called before the streams go.
  void stop();

  struct Batch {
    std::vector<Event> events;
    std::optional<Streams::Lag> lag;
    bool more = false;
    bool known = true;
  };
  /// The next events, about `max_bytes` in the log's form.
  Batch read(size_t max_bytes);

  bool ended() const { return cursor_.ended; }
  const StreamId& stream() const { return stream_; }
  /// What comes next of each choice, as from_seq takes it: "0:12,1:9".
  std::string position() const;
  /// Whether a reader that had once read everything has fallen behind by more than about so many bytes of the log.
  bool behind(size_t max_bytes) const;

  void wake(const StreamId&) override;

private:
  Streams& streams_;
  const StreamId stream_;
  Cursor cursor_;
  std::shared_ptr<Call> call_;
  std::function<void()> ready_;
  std::atomic<bool> noted_ = false; // a call of ready_ is on its way
  uint64_t events_ = 0, bytes_ = 0; // numbered ones that were read
  bool caught_up_ = false;          // at least once: who joins late is not slow
};

} // namespace millrace::http
