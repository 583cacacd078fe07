#pragma once

#include "actors/pipeline.hpp"

#include <condition_variable>
#include <mutex>
#include <unordered_map>

namespace millrace {

/// The requests that were taken and have not ended, as their reader sees them: all events pass through here. So the pipeline can
/// refuse an id that is in use, wait for the end, and end the streams itself if dispatch is no more. Thread-safe.
class OpenRequests {
public:
  explicit OpenRequests(EventSink sink) : sink_(std::move(sink)) {}

  /// Opens a request, or says why not: its id is in use, or the pipeline refuses.
  std::optional<Failure> open(const Generate& request);
  /// Takes back an open() whose request goes no further.
  void forget(const StreamId& id);
  /// Passes an event on. One caller at a time.
  void publish(const Event& event);

  /// Refuses what comes from now on, for this reason.
  void refuse(Failure reason);
  /// True if nothing is open any more, false after this time.
  bool wait_until_empty(std::chrono::milliseconds patience);
  std::vector<StreamId> ids() const;
  /// Ends everything that is open with this error. Only once nobody else publishes.
  void fail_all(Error error);

private:
  struct Choice {
    uint32_t epoch = 0;
    int64_t next_seq = 0;
    bool finished = false;
  };
  void note(const Event& event);

  EventSink sink_;
  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  std::optional<Failure> refusal_;
  std::unordered_map<StreamId, std::vector<Choice>> open_;
  int publishing_ = 0; // last events that the sink has not returned from
};

} // namespace millrace
