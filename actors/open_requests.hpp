#pragma once

#include "actors/pipeline.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace millrace {

/// The requests that were taken and have not ended, as their reader sees them: all events pass through here.
/// So the pipeline can refuse an id that is in use, wait for the end, tell what is going on, and end the
/// streams itself if dispatch is no more. Thread-safe.
class OpenRequests {
public:
  using Time = std::chrono::steady_clock::time_point;
  using Clock = std::function<Time()>;

  explicit OpenRequests(EventSink sink, Clock clock = std::chrono::steady_clock::now)
      : sink_(std::move(sink)), clock_(std::move(clock)) {}

  /// Opens a request, or says why not: its id is in use, or the pipeline refuses.
  std::optional<Failure> open(const Generate& request);
  /// Likewise, where the readers of an earlier process stand.
  std::optional<Failure> open(const ResumedRequest& request);
  /// Takes back an open() whose request goes no further.
  void forget(const StreamId& id);
  /// Its prompt has so many tokens and waits for dispatch. One that is not open is ignored.
  void encoded(const StreamId& id, int32_t prompt_tokens);
  /// Passes an event on. One caller at a time.
  void publish(const Event& event);

  /// Refuses what comes from now on, for this reason.
  void refuse(Failure reason);
  /// True if nothing is open any more, false after this time.
  bool wait_until_empty(std::chrono::milliseconds patience);
  std::vector<StreamId> ids() const;
  /// Since when something has been open at any time; nullopt if nothing is.
  std::optional<Time> busy_since() const;
  /// Of the oldest ones.
  std::vector<RequestStats> stats(size_t limit) const;
  /// Ends everything that is open with this error. Only once nobody else publishes.
  void fail_all(Error error);

private:
  struct Choice {
    uint32_t epoch = 0;
    int64_t next_seq = 0;
    bool finished = false;
    int32_t processed = 0; // prompt tokens
  };
  enum class Phase : uint8_t { encoding, waiting, prefill, decode };
  struct Request {
    std::vector<Choice> choices;
    uint64_t number = 0; // in the order of opening
    Time opened;
    Phase phase = Phase::encoding; // of its most advanced choice
    int32_t prompt_tokens = 0;
    int64_t generated = 0; // here
    Time first_token{};
  };

  std::optional<Failure> open(const StreamId& id, std::vector<Choice> choices);
  void note(const Event& event);
  // What an event says of a request, besides the choice's epoch.
  void note(const Started& event, Request& request);
  void note(const Progress& event, Request& request);
  void note(const PromptLogprobs&, Request&) {}
  void note(const Token& event, Request& request);
  void note(const Finished& event, Request& request);
  static RequestStats describe(const StreamId& id, const Request& request, Time now);

  EventSink sink_;
  Clock clock_;
  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  std::optional<Failure> refusal_;
  std::unordered_map<StreamId, Request> open_;
  uint64_t next_number_ = 0;
  Time busy_since_;
  int publishing_ = 0; // last events that the sink has not returned from
};

} // namespace millrace
