#include "gateway/zeromq/door.hpp"

#include "gateway/event_frame.hpp"
#include "gateway/zeromq/follows.hpp"
#include "gateway/zeromq/publisher.hpp"
#include "gateway/zeromq/replies.hpp"
#include "gateway/zeromq/socket.hpp"
#include "gateway/zeromq/wakeup.hpp"
#include "messages/codec.hpp"
#include "messages/report.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// What one turn of the loop does at most for each side, so that neither starves the other.
constexpr size_t kEventsPerTurn = 1'024;
constexpr size_t kSubscriptionsPerTurn = 256;
constexpr size_t kRequestsPerTurn = 64;
constexpr milliseconds kTimeForRequests{2}; // of a turn; a Look may read a whole log
constexpr milliseconds kLongestRetry{64}; // a ROUTER cannot tell when a certain client reads again
constexpr milliseconds kLongestSleep{250};
constexpr int kMaxFailedTurns = 16;
constexpr int32_t kMaxRequestsTold = 1'024;

} // namespace

/// All but the flags and the copy of the counts belongs to the thread.
struct ZeroMqDoor::State {
  State(const ZeroMqDoorOptions& options, Streams& streams);
  ~State();

  std::string requests_endpoint_;
  std::string events_endpoint_;
  mutable std::mutex stats_mutex_;
  ZeroMqDoorStats stats_; // copy of counts_ for others

private:
  void run();
  void turn();
  milliseconds sleep_time() const;
  bool take_events();
  void handle_requests();
  void handle(const Received& received);
  void handle(const Received& from, Generate& request);
  void handle(const Received& from, const Cancel& request);
  void handle(const Received& from, const Replay& request);
  void handle(const Received& from, const Follow& request);
  void handle(const Received& from, const Read& request);
  void handle(const Received& from, const Look& request);
  void handle(const Received& from, const Stats& request);
  void send_replies();
  void keep_house();
  void tell_stats();

  bool may_join(const StreamId& stream, const Principal& who) const;
  bool may_read(const Received& from, const StreamId& stream);
  bool has_room_for_large(const Received& from, const StreamId& stream);
  void acknowledge(const Client& client, const StreamId& request, std::string_view type, bool joined = false);
  void reject(const Client& client, const StreamId& request, const Failure& failure);
  void welcome(const StreamId& stream);
  template <Message M> void announce(const StreamId& stream, const M& message);

  const ZeroMqDoorOptions options_;
  Streams& streams_;
  std::atomic<bool> stopping_{false};
  Wakeup wakeup_;

  zmq::context_t context_ = make_context();
  CurveGuard guard_; // ends after the sockets that it guards
  Replies replies_;
  Publisher publisher_;
  Follows follows_;
  std::vector<LoggedEvent> events_; // taken from the outbox
  size_t next_event_ = 0;           // of events_
  uint64_t taken_ = 0;              // events of the outbox that were given to the publisher
  bool more_subscriptions_ = false;
  bool more_requests_ = false;
  bool replies_moved_ = false;
  milliseconds retry_{1}; // until blocked replies are tried again
  Clock::time_point housekeeping_;
  ZeroMqDoorStats counts_;

  std::thread thread_; // last: it begins when all else is there
};

ZeroMqDoor::State::State(const ZeroMqDoorOptions& options, Streams& streams)
    : options_(options), streams_(streams), guard_(context_, options.curve),
      replies_(context_, options.requests, streams, guard_.access(options.allow_remote)),
      publisher_(context_, options.events, options.subscriber_queue, options.max_subscriptions,
                 guard_.access(options.allow_remote)),
      follows_(streams, replies_, {.silence = options.follow_silence}) {
  requests_endpoint_ = bound_endpoint(replies_.socket());
  events_endpoint_ = bound_endpoint(publisher_.socket());
  thread_ = std::thread([this] { run(); });
}

ZeroMqDoor::State::~State() {
  stopping_ = true;
  wakeup_.signal();
  thread_.join();
}

// ---- the thread ----

void ZeroMqDoor::State::run() {
  sigset_t all; // signals are the business of the main thread
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);

  streams_.attach_outbox([this] { wakeup_.signal(); });
  for (int failed = 0; !stopping_;) {
    try {
      turn();
      failed = 0;
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR && ++failed == kMaxFailedTurns)
        throw;
    } catch (const std::exception& error) {
      report("gateway", error.what());
      if (++failed == kMaxFailedTurns) // dead for good: end the process rather than look alive
        throw;
    }
  }
  while (take_events()) {
  }
  publisher_.flush_all();
  streams_.attach_outbox({});
}

void ZeroMqDoor::State::turn() {
  std::array<zmq::pollitem_t, 3> items{{{nullptr, wakeup_.descriptor(), ZMQ_POLLIN, 0},
                                        {replies_.socket().handle(), 0, ZMQ_POLLIN, 0},
                                        {publisher_.socket().handle(), 0, ZMQ_POLLIN, 0}}};
  zmq::poll(items, sleep_time());

  take_events();
  if (publisher_.waiting())
    publisher_.flush();
  if (items[2].revents || more_subscriptions_)
    more_subscriptions_ = publisher_.admit(
        kSubscriptionsPerTurn,
        [this](const StreamId& stream, const Principal& who) { return may_join(stream, who); },
        [this](const StreamId& stream) { welcome(stream); });
  if (items[1].revents || more_requests_)
    handle_requests();
  if (Clock::now() >= housekeeping_)
    keep_house();
  tell_stats(); // before the answers leave, so that who has one finds its request counted
  send_replies();
}

/// 0 while there is work that no socket announces.
milliseconds ZeroMqDoor::State::sleep_time() const {
  if (next_event_ < events_.size() || more_subscriptions_ || more_requests_ || follows_.ready() ||
      (replies_.waiting() && replies_moved_))
    return milliseconds(0);
  if (publisher_.waiting())
    return milliseconds(1);
  const milliseconds idle =
      std::clamp(std::min(options_.heartbeat, options_.log_ttl) / 2, milliseconds(1), kLongestSleep);
  return replies_.waiting() || follows_.stalled() ? std::min(idle, retry_) : idle;
}

/// False if there was nothing.
bool ZeroMqDoor::State::take_events() {
  if (next_event_ == events_.size()) {
    wakeup_.clear(); // before the events are taken: who adds to them later raises it again
    next_event_ = 0;
    streams_.take_outbox(events_);
  }
  const size_t end = std::min(events_.size(), next_event_ + kEventsPerTurn);
  const bool any = next_event_ < end;
  taken_ += end - next_event_;
  while (next_event_ < end) {
    LoggedEvent& event = events_[next_event_++];
    follows_.note(event.sequence.request);
    publisher_.publish(std::move(event));
  }
  return any;
}

void ZeroMqDoor::State::handle_requests() {
  more_requests_ = true;
  const auto end = Clock::now() + kTimeForRequests;
  for (size_t i = 0; i < kRequestsPerTurn && Clock::now() < end; ++i) {
    const auto received = replies_.receive();
    if (!received) {
      more_requests_ = false;
      return;
    }
    handle(*received);
  }
}

void ZeroMqDoor::State::send_replies() {
  if (!replies_.waiting() && !follows_.ready() && !follows_.stalled()) {
    replies_moved_ = false;
    retry_ = milliseconds(1);
    return;
  }
  const size_t moved = replies_.flush() + follows_.pump();
  replies_moved_ = moved > 0;
  retry_ = replies_moved_ ? milliseconds(1) : std::min(2 * retry_, kLongestRetry);
}

void ZeroMqDoor::State::keep_house() {
  for (const StreamId& stream : streams_.idle(options_.heartbeat))
    announce(stream, Heartbeat{.request = stream, .next_seq = streams_.next_seqs(stream)});
  streams_.expire();
  streams_.tell_subscriptions(static_cast<int64_t>(publisher_.in_force()));
  follows_.sweep();
  housekeeping_ = Clock::now() + std::clamp(std::min(options_.heartbeat, options_.log_ttl) / 4,
                                            milliseconds(0), kLongestSleep);
}

void ZeroMqDoor::State::tell_stats() {
  counts_.undeliverable_replies = replies_.undeliverable();
  counts_.refused_subscriptions = publisher_.refused();
  counts_.overrun_subscribers = publisher_.overrun();
  counts_.sent = taken_ - std::min<uint64_t>(taken_, publisher_.held());
  counts_.follows = follows_.size();
  counts_.subscriptions = publisher_.in_force();
  const std::lock_guard lock(stats_mutex_);
  stats_ = counts_;
}

// ---- what clients send ----

void ZeroMqDoor::State::handle(const Received& received) {
  ++counts_.requests;
  const Client& client = received.client;
  follows_.hear(client);
  if (!replies_.has_room(client)) { // not even read, so that no answer always means: not done
    ++counts_.unanswered_requests;
    return;
  }
  if (!received.frame)
    return reject(client, {}, {Error::malformed, "", "a request is one frame"});

  const std::string_view frame = received.frame->to_string_view();
  auto message = decode_client_message(frame);
  if (const auto* failure = std::get_if<Failure>(&message))
    return reject(client, read_envelope(frame).request.value_or(StreamId{}), *failure);
  std::visit([&](auto& request) { handle(received, request); }, std::get<ClientMessage>(message));
}

void ZeroMqDoor::State::handle(const Received& from, Generate& request) {
  const StreamId id = request.request;
  if (publisher_.claimed_by_another(id, from.who))
    return reject(from.client, id, {Error::conflict, "request", "the stream id is in use"});

  const auto result = streams_.open(std::move(request), from.who, {.door = "zmq", .request_id = ""});
  if (const auto* failure = std::get_if<Failure>(&result)) {
    if (failure->code != Error::conflict) // else the topic belongs to the other request
      announce(id, rejection(id, *failure));
    return reject(from.client, id, *failure);
  }
  const auto& opened = std::get<Streams::Opened>(result);
  acknowledge(from.client, opened.stream, Generate::kType, opened.joined);
}

void ZeroMqDoor::State::handle(const Received& from, const Cancel& request) {
  if (const auto failure = streams_.cancel(request.request, from.who, {.door = "zmq", .request_id = ""}))
    return reject(from.client, request.request, *failure);
  acknowledge(from.client, request.request, Cancel::kType);
}

void ZeroMqDoor::State::handle(const Received& from, const Replay& request) {
  if (!may_read(from, request.request))
    return;
  if (!streams_.held(request.request, request.choice))
    return reject(from.client, request.request,
                  {Error::invalid_field, "choice", "the stream has no such choice"});
  replies_.send(from.client, request);
}

void ZeroMqDoor::State::handle(const Received& from, const Follow& request) {
  if (!may_read(from, request.request))
    return;
  if (const auto failure = follows_.begin(from.client, request))
    return reject(from.client, request.request, *failure);
  acknowledge(from.client, request.request, Follow::kType);
}

void ZeroMqDoor::State::handle(const Received& from, const Read& request) {
  follows_.acknowledge(from.client, request);
}

void ZeroMqDoor::State::handle(const Received& from, const Look& request) {
  if (!may_read(from, request.request) || !has_room_for_large(from, request.request))
    return;
  if (const auto snapshot = streams_.snapshot(request.request))
    replies_.send(from.client, to_frame(*snapshot));
  else // it has left the log just now
    may_read(from, request.request);
}

void ZeroMqDoor::State::handle(const Received& from, const Stats& request) {
  if (request.max_requests < 0 || request.max_requests > kMaxRequestsTold)
    return reject(
        from.client, {},
        {Error::invalid_field, "max_requests", "must be in 0 … " + std::to_string(kMaxRequestsTold)});
  if (!has_room_for_large(from, {}))
    return;
  replies_.send(from.client, to_frame(streams_.server_stats(request.max_requests)));
}

/// Refuses the request if not.
bool ZeroMqDoor::State::may_read(const Received& from, const StreamId& stream) {
  if (streams_.may_read(stream, from.who))
    return true;
  reject(from.client, stream, {Error::unknown_request, "request", "no such stream"});
  return false;
}

/// Likewise.
bool ZeroMqDoor::State::has_room_for_large(const Received& from, const StreamId& stream) {
  if (!replies_.crowded())
    return true;
  reject(from.client, stream, {Error::busy, "", "clients have left too many answers unread"});
  return false;
}

void ZeroMqDoor::State::acknowledge(const Client& client, const StreamId& request, std::string_view type,
                                    bool joined) {
  Ack ack;
  ack.request = request;
  ack.of = type;
  ack.joined = joined;
  replies_.send(client, to_frame(ack));
}

void ZeroMqDoor::State::reject(const Client& client, const StreamId& request, const Failure& failure) {
  ++counts_.refused_requests;
  replies_.send(client, to_frame(rejection(request, failure)));
}

// ---- what subscribers hear ----

/// A stream that was opened is for those who may read it, a topic without one for who subscribed to it first.
bool ZeroMqDoor::State::may_join(const StreamId& stream, const Principal& who) const {
  return streams_.contains(stream) ? streams_.may_read(stream, who)
                                   : !publisher_.claimed_by_another(stream, who);
}

/// To all subscribers of the stream, since XPUB knows no addressees; those that were there before skip it.
void ZeroMqDoor::State::welcome(const StreamId& stream) {
  Welcome message;
  message.request = stream;
  message.live = streams_.live(stream);
  message.next_seq = streams_.next_seqs(stream);
  announce(stream, message);
}

template <Message M> void ZeroMqDoor::State::announce(const StreamId& stream, const M& message) {
  publisher_.publish({.sequence = {stream, 0, 0}, .body = to_frame(message)});
}

// ---- the interface ----

ZeroMqDoor::ZeroMqDoor(const ZeroMqDoorOptions& options, Streams& streams)
    : state_(std::make_unique<State>(options, streams)) {}
ZeroMqDoor::~ZeroMqDoor() = default;

std::string ZeroMqDoor::requests_endpoint() const {
  return state_->requests_endpoint_;
}
std::string ZeroMqDoor::events_endpoint() const {
  return state_->events_endpoint_;
}
ZeroMqDoorStats ZeroMqDoor::stats() const {
  const std::lock_guard lock(state_->stats_mutex_);
  return state_->stats_;
}

} // namespace millrace
