#pragma once

// The book of all requests in flight. What is written here is all that is needed to go on elsewhere: prompt, parameters, and
// the ids that readers have been told. It is also where a request's events get their order.
//
// The life of a choice:
//
//   waiting ──next()──▶ sent ──started()──▶ running ──sampled()──▶ finished
//      ▲                  │                    │
//      └── take_back() ───┴─── preempted() ────┘    cancel(), expire() and lose_device() finish from any state

#include "actors/scheduler/admission.hpp"
#include "actors/messages.hpp"
#include "actors/scheduler/fair_queue.hpp"
#include "actors/scheduler/options.hpp"
#include "messages/stats.hpp"

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

namespace millrace {

class Ledger {
public:
  using Time = std::chrono::steady_clock::time_point;

  /// context_length: positions that a device has for one sequence. The sink is called from the methods.
  Ledger(const SchedulerOptions& options, int32_t context_length, EventSink sink);

  /// Opens a request, or tells its reader that it is refused. The prompt has 1 … context_length - 1 ids; the request's id is
  /// not open. After the deadline it ends.
  void admit(Prompt prompt, Time now, std::optional<Time> deadline = {});
  /// Opens a request that an earlier process began, also where others would be refused as busy: it waited its turn there. Tells
  /// the ends that its readers may lack.
  void resume(LocalResumption resumption, Time now, std::optional<Time> deadline = {});
  /// Passes on a refusal that was made before.
  void refuse(const Rejected& rejected);
  /// The next choice that is to run, if there is room for one in the batch and the device has not got enough to read: the order
  /// is kept here, for those that come later and are more urgent.
  std::optional<Sequence> next(Time now);
  /// A sequence that should make room, where the batch is full and something waits that has a better claim: its tenant has
  /// nothing on the device while another, served more, has two or more, or it is more urgent than one that runs. So the one
  /// that makes room waits behind it. One at a time: until that one has left the device there is no other.
  std::optional<SequenceId> yield(Time now);

  // What the device's actors say. All of it is dropped and counted if it comes from an earlier owner.
  void started(const SequenceStarted& started, Time now);
  void progress(const Progress& progress);
  void scored(PromptLogprobs piece);
  void sampled(Sampled sampled, Time now);
  /// It waits again, at its old place, with the next epoch.
  void preempted(const SequencePreempted& preempted);

  /// Ends a request; returns the sequences that the device has to forget. An unknown request has none.
  std::vector<SequenceId> cancel(const StreamId& request, Time now);
  /// Ends the requests whose deadline is over; returns the sequences that the device has to forget.
  std::vector<SequenceId> expire(Time now);
  /// When expire() has something to do next.
  std::optional<Time> next_deadline() const;
  /// The device's actors died: what they had waits again, at its old place.
  void take_back();
  /// There is no device any more: ends all requests, and refuses new ones.
  void lose_device(Time now);

  struct Totals {
    int32_t running = 0, waiting = 0; // choices
    int64_t queued_tokens = 0;
    int64_t prompt_tokens = 0, generated_tokens = 0;
    int64_t finished = 0, rejected = 0;
    int64_t preempted = 0, yielded = 0;
    int64_t cancelled = 0, expired = 0; // requests
  };
  Totals totals() const;
  int64_t stale() const { return stale_; }

private:
  struct Choice {
    enum State { waiting, sent, running, finished } state = waiting;
    uint32_t epoch = 0;
    int32_t read = 0; // prompt tokens
    Time since{};     // its admission; later, if it has yielded, by its time on the device
    std::chrono::nanoseconds waited{0}; // until it was given out
    bool charged = false;               // for its prompt
    bool refunded = false;              // for what the cache held of that
    std::vector<TokenId> emitted_ids;
  };
  struct Request {
    Prompt prompt;
    uint64_t number = 0; // in the order of admission
    std::optional<Time> deadline;
    int32_t scored = 0;  // prompt tokens whose log-probs have been told
    std::vector<Choice> choices;
    Time admitted;
    std::optional<Time> began, first_token;
    int64_t length() const { return int64_t(prompt.token_ids.size()); }
    const std::string& tenant() const { return prompt.generate.tenant; }
  };
  /// What a tenant has in the queue.
  struct Held {
    int64_t tokens = 0;
    int32_t requests = 0;
  };

  Request& open(Prompt prompt, Time now, std::optional<Time> deadline);
  /// Why a request is not admitted; empty if it is.
  std::string why_busy(const Generate& generate, int64_t tokens, Time now, std::optional<Time> deadline) const;
  /// Whether the tenant has its share of what may wait.
  bool has_share(const std::string& tenant, int64_t tokens) const;
  /// How long such a request would wait; nullopt while that is not known.
  std::optional<std::chrono::nanoseconds> wait_of(const Generate& generate, int64_t tokens) const;
  /// Books what a request has in the queue.
  void hold(const Request& request, int64_t tokens, int32_t requests);
  void wait(const Request& request, int32_t choice);
  void wait_again(Request& request, int32_t choice);
  /// Whether a tenant has at most its share of the places on the device.
  bool has_less(const std::string& tenant) const;
  static uint64_t rank(const Request& request, int32_t choice);
  /// The sequences of a request that the device has; it is told to forget them.
  std::vector<SequenceId> forget(const StreamId& id);
  Choice* find(const SequenceId& id);
  void refuse(const StreamId& request, Error error, std::string message);
  void set_state(Request& request, Choice& choice, Choice::State state);
  void set_read(const Request& request, Choice& choice, int32_t tokens);
  /// What a choice counts in unread_tokens_.
  int64_t unread(const Request& request, const Choice& choice) const;
  void emit(const SequenceId& id, SampledToken token);
  /// Ends a choice, and with its last one the request: the reference is dead then.
  void finish(Request& request, Choice& choice, Sampled end, Time now);
  /// Ends a request if all its choices have ended: the reference is dead then. Returns whether it did.
  bool close_if_finished(Request& request, Time now);
  /// Ends what has not ended of a request.
  void finish_all(const StreamId& id, FinishReason reason, std::string_view error, Time now);
  void remember_cancelled(std::span<const SequenceId> sequences);
  uint32_t first_epoch(const StreamId& id) const;

  SchedulerOptions options_;
  Admission admission_;
  QueueWait queue_wait_;
  int32_t context_length_;
  EventSink sink_;
  std::unordered_map<StreamId, Request> requests_;
  FairQueue waiting_;
  std::unordered_map<std::string, Held> held_; // by tenant; none is zero
  std::map<int32_t, int64_t> held_tokens_;     // by priority; none is zero
  std::set<std::pair<Time, StreamId>> deadlines_;
  // Those that run, by rank, for yield().
  std::map<uint64_t, SequenceId> running_;
  std::optional<SequenceId> yielding_;
  std::deque<std::pair<StreamId, uint32_t>> cancelled_; // the latest ones that a device knew, and their epochs
  uint64_t next_number_ = 0;
  int32_t in_device_ = 0;     // choices that are sent or running
  int64_t unread_tokens_ = 0; // of prompts on the device, half a chunk of each at most
  bool device_lost_ = false;
  int64_t stale_ = 0;
  Totals totals_;
};

} // namespace millrace
