#include "gateway/gateway.hpp"

#include "gateway/zeromq/publisher.hpp"
#include "gateway/zeromq/replies.hpp"
#include "gateway/zeromq/socket.hpp"
#include "gateway/stream_log.hpp"
#include "gateway/zeromq/wakeup.hpp"
#include "messages/codec.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
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
constexpr milliseconds kLongestRetry{64}; // a ROUTER cannot tell when a certain client reads again
constexpr int kMaxFailedTurns = 16;

zmq::message_t to_frame(const std::string& bytes) {
  return zmq::message_t(bytes.data(), bytes.size());
}

/// An event on its way to the gateway's thread, encoded already by the one who published it.
struct Published {
  enum class Kind { unnumbered, numbered, last_of_choice, last_of_stream };
  Kind kind = Kind::unnumbered;
  SequenceId sequence;
  int64_t seq = -1;
  zmq::message_t body;
};

template <class E> Published to_published(const E& event) {
  Published published{.sequence = {.request = event.request}, .body = to_frame(encode(event))};
  if constexpr (std::is_same_v<E, Done> || std::is_same_v<E, Rejected>) {
    published.kind = Published::Kind::last_of_stream;
  } else {
    published.sequence.choice = event.choice;
    published.sequence.epoch = event.epoch;
    if constexpr (std::is_same_v<E, Token> || std::is_same_v<E, Finished>) {
      published.seq = event.seq;
      published.kind = std::is_same_v<E, Token> ? Published::Kind::numbered : Published::Kind::last_of_choice;
    }
  }
  return published;
}

} // namespace

/// All but the inbox, the backend and the flags belongs to the thread.
struct Gateway::State {
  State(const GatewayOptions& options, Backend backend);
  ~State();

  void publish(const Event& event);
  void drain() { draining_ = true; }
  void detach();
  GatewayStats stats() const;

  std::string requests_endpoint_;
  std::string events_endpoint_;

private:
  void run();
  void turn();
  milliseconds sleep_time() const;
  bool take_events();
  void handle_requests();
  void handle(const Received& received);
  void handle(const Client& client, Generate& request);
  void handle(const Client& client, const Cancel& request);
  void handle(const Client& client, const Replay& request);
  template <class M> void handle(const Client& client, const M&) {
    reject(client, {}, {Error::unsupported, "type", "is not answered by this build"});
  }
  void handle(Published& event);
  void flush_replies();
  void send_heartbeats();
  void tell_stats();

  std::optional<Failure> submit(Generate request);
  void cancel(const StreamId& request);
  void acknowledge(const Client& client, const StreamId& request, std::string_view type);
  void reject(const Client& client, const StreamId& request, const Failure& failure);
  void welcome(const StreamId& stream);
  template <Message M> void announce(const StreamId& stream, const M& message);

  const GatewayOptions options_;
  std::mutex backend_mutex_; // held during calls, so that detach() waits for them
  Backend backend_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};

  std::mutex inbox_mutex_;
  std::vector<Published> inbox_;
  Wakeup wakeup_;

  zmq::context_t context_ = make_context();
  CurveGuard guard_; // ends after the sockets that it guards
  StreamLog log_;
  Replies replies_;
  Publisher publisher_;
  std::vector<Published> events_; // taken from the inbox
  size_t next_event_ = 0;         // of events_
  bool more_subscriptions_ = false;
  bool more_requests_ = false;
  bool replies_moved_ = false;
  milliseconds retry_{1}; // until blocked replies are tried again
  GatewayStats counts_;

  mutable std::mutex stats_mutex_;
  GatewayStats stats_; // copy of counts_ for others

  std::thread thread_; // last: it begins when all else is there
};

Gateway::State::State(const GatewayOptions& options, Backend backend)
    : options_(options), backend_(std::move(backend)), guard_(context_, options.curve),
      log_({.stream_bytes = options.stream_log_bytes,
            .total_bytes = options.total_log_bytes,
            .ttl = options.log_ttl}),
      replies_(context_, options.requests, log_, guard_.access(options.allow_remote)),
      publisher_(context_, options.events, options.subscriber_queue, options.max_subscriptions,
                 guard_.access(options.allow_remote)) {
  requests_endpoint_ = bound_endpoint(replies_.socket());
  events_endpoint_ = bound_endpoint(publisher_.socket());
  thread_ = std::thread([this] { run(); });
}

Gateway::State::~State() {
  stopping_ = true;
  wakeup_.signal();
  thread_.join();
}

void Gateway::State::publish(const Event& event) {
  Published published = std::visit([](const auto& e) { return to_published(e); }, event);
  bool first;
  {
    std::lock_guard lock(inbox_mutex_);
    first = inbox_.empty();
    inbox_.push_back(std::move(published));
  }
  if (first)
    wakeup_.signal();
}

void Gateway::State::detach() {
  draining_ = true;
  std::lock_guard lock(backend_mutex_);
  backend_ = {};
}

GatewayStats Gateway::State::stats() const {
  std::lock_guard lock(stats_mutex_);
  return stats_;
}

// ---- the thread ----

void Gateway::State::run() {
  sigset_t all; // signals are the business of the main thread
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);

  for (int failed = 0; !stopping_;) {
    try {
      turn();
      failed = 0;
    } catch (const zmq::error_t& error) {
      if (error.num() == ETERM)
        return;
      if (error.num() != EINTR && ++failed == kMaxFailedTurns)
        throw;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "gateway: %s\n", error.what());
      if (++failed == kMaxFailedTurns) // dead for good: end the process rather than look alive
        throw;
    }
  }
  while (take_events()) {
  }
}

void Gateway::State::turn() {
  std::array<zmq::pollitem_t, 3> items{{{nullptr, wakeup_.descriptor(), ZMQ_POLLIN, 0},
                                        {replies_.socket().handle(), 0, ZMQ_POLLIN, 0},
                                        {publisher_.socket().handle(), 0, ZMQ_POLLIN, 0}}};
  zmq::poll(items, sleep_time());

  take_events();
  if (items[2].revents || more_subscriptions_)
    more_subscriptions_ =
        publisher_.admit(kSubscriptionsPerTurn, [this](const StreamId& stream) { welcome(stream); });
  if (items[1].revents || more_requests_)
    handle_requests();
  flush_replies();
  send_heartbeats();
  log_.expire(Clock::now());
  tell_stats();
}

/// 0 while there is work that no socket announces.
milliseconds Gateway::State::sleep_time() const {
  if (next_event_ < events_.size() || more_subscriptions_ || more_requests_ ||
      (replies_.waiting() && replies_moved_))
    return milliseconds(0);
  const milliseconds idle = std::max(milliseconds(1), std::min(options_.heartbeat, options_.log_ttl) / 2);
  return replies_.waiting() ? std::min(idle, retry_) : idle;
}

/// False if there was nothing.
bool Gateway::State::take_events() {
  if (next_event_ == events_.size()) {
    events_.clear();
    next_event_ = 0;
    std::lock_guard lock(inbox_mutex_);
    wakeup_.clear(); // only here: it stays raised while the inbox holds something
    events_.swap(inbox_);
  }
  const size_t end = std::min(events_.size(), next_event_ + kEventsPerTurn);
  const bool any = next_event_ < end;
  while (next_event_ < end)
    handle(events_[next_event_++]);
  return any;
}

void Gateway::State::handle_requests() {
  more_requests_ = true;
  for (size_t i = 0; i < kRequestsPerTurn; ++i) {
    const auto received = replies_.receive();
    if (!received) {
      more_requests_ = false;
      return;
    }
    handle(*received);
  }
}

void Gateway::State::flush_replies() {
  replies_moved_ = replies_.waiting() && replies_.flush() > 0;
  retry_ = replies_moved_ ? milliseconds(1) : std::min(2 * retry_, kLongestRetry);
}

void Gateway::State::send_heartbeats() {
  for (const StreamId& stream : log_.idle(Clock::now(), options_.heartbeat))
    announce(stream, Heartbeat{.request = stream, .next_seq = log_.next_seqs(stream)});
}

void Gateway::State::tell_stats() {
  counts_.undeliverable_replies = replies_.undeliverable();
  counts_.refused_subscriptions = publisher_.refused();
  counts_.log_streams = log_.size();
  counts_.log_bytes = log_.bytes();
  std::lock_guard lock(stats_mutex_);
  stats_ = counts_;
}

// ---- what clients send ----

void Gateway::State::handle(const Received& received) {
  ++counts_.requests;
  const Client& client = received.client;
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
  std::visit([&](auto& request) { handle(client, request); }, std::get<ClientMessage>(message));
}

void Gateway::State::handle(const Client& client, Generate& request) {
  const StreamId id = request.request;
  const int32_t choices = request.n;
  if (log_.contains(id)) // not told on the topic: that belongs to the other request
    return reject(client, id, {Error::conflict, "request", "the stream id is in use"});

  if (const auto failure = submit(std::move(request))) {
    announce(id, rejection(id, *failure));
    return reject(client, id, *failure);
  }
  // Events of the request that were published meanwhile wait in the inbox, which this thread empties.
  log_.open(id, choices, Clock::now());
  acknowledge(client, id, Generate::kType);
}

void Gateway::State::handle(const Client& client, const Cancel& request) {
  if (!log_.contains(request.request))
    return reject(client, request.request, {Error::unknown_request, "request", "no such stream"});
  cancel(request.request); // one that has ended is ignored there
  acknowledge(client, request.request, Cancel::kType);
}

void Gateway::State::handle(const Client& client, const Replay& request) {
  if (!log_.contains(request.request))
    return reject(client, request.request, {Error::unknown_request, "request", "no such stream"});
  if (!log_.held(request.request, request.choice))
    return reject(client, request.request, {Error::invalid_field, "choice", "the stream has no such choice"});
  replies_.send(client, request);
}

std::optional<Failure> Gateway::State::submit(Generate request) {
  const std::lock_guard lock(backend_mutex_);
  if (draining_ || !backend_.submit)
    return Failure{Error::draining, "", "the server is stopping"};
  try {
    return backend_.submit(std::move(request));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gateway: submit: %s\n", error.what());
    return Failure{Error::internal, "", "the request could not be submitted"};
  }
}

void Gateway::State::cancel(const StreamId& request) {
  const std::lock_guard lock(backend_mutex_);
  if (backend_.cancel)
    backend_.cancel(request);
}

void Gateway::State::acknowledge(const Client& client, const StreamId& request, std::string_view type) {
  replies_.send(client, to_frame(encode(Ack{.request = request, .of = std::string(type)})));
}

void Gateway::State::reject(const Client& client, const StreamId& request, const Failure& failure) {
  ++counts_.refused_requests;
  replies_.send(client, to_frame(encode(rejection(request, failure))));
}

// ---- what subscribers hear ----

void Gateway::State::handle(Published& event) {
  using Verdict = StreamLog::Verdict;
  const Clock::time_point now = Clock::now();
  zmq::message_t reference;
  reference.copy(event.body);
  Verdict verdict = Verdict::taken;
  switch (event.kind) {
  case Published::Kind::unnumbered: verdict = log_.admit(event.sequence, now); break;
  case Published::Kind::last_of_stream:
    verdict = log_.end(event.sequence.request, std::move(reference), now);
    break;
  case Published::Kind::numbered:
  case Published::Kind::last_of_choice:
    verdict = log_.append(event.sequence, event.seq, event.kind == Published::Kind::last_of_choice,
                          std::move(reference), now);
    break;
  }
  switch (verdict) {
  case Verdict::taken:
    ++counts_.published;
    publisher_.publish(event.sequence.request, {event.sequence.choice, event.seq, event.sequence.epoch},
                       event.body);
    break;
  case Verdict::unknown_stream: ++counts_.unexpected_events; break;
  case Verdict::stale_epoch: ++counts_.stale_events; break;
  case Verdict::out_of_order: ++counts_.out_of_order_events; break;
  }
}

/// To all subscribers of the stream, since XPUB knows no addressees; those that were there before skip it.
void Gateway::State::welcome(const StreamId& stream) {
  announce(stream, Welcome{.request = stream, .live = log_.live(stream), .next_seq = log_.next_seqs(stream)});
}

template <Message M> void Gateway::State::announce(const StreamId& stream, const M& message) {
  zmq::message_t body = to_frame(encode(message));
  publisher_.publish(stream, {}, body);
}

// ---- the interface ----

Gateway::Gateway(const GatewayOptions& options, Backend backend)
    : state_(std::make_unique<State>(options, std::move(backend))) {}
Gateway::~Gateway() = default;

std::string Gateway::requests_endpoint() const {
  return state_->requests_endpoint_;
}
std::string Gateway::events_endpoint() const {
  return state_->events_endpoint_;
}
void Gateway::publish(const Event& event) {
  state_->publish(event);
}
void Gateway::drain() {
  state_->drain();
}
void Gateway::detach() {
  state_->detach();
}
GatewayStats Gateway::stats() const {
  return state_->stats();
}

} // namespace millrace
