#include "gateway/client.hpp"

#include "messages/codec.hpp"

#include <zmq.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMaxWindow = 256;      // numbered events under way to a paced reader
constexpr int kQueue = 100'000;         // events that wait in the socket
constexpr int kFramesPerTurn = 1'000;   // of one socket
constexpr milliseconds kLongestNap{50}; // timers are this exact

std::string topic_of(const StreamId& stream) {
  return {stream.bytes.begin(), stream.bytes.end()};
}

void prepare(zmq::socket_t& socket, const ClientOptions& options) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kMaxFrameBytes) + 4096);
  socket.set(zmq::sockopt::heartbeat_ivl, static_cast<int>(options.heartbeat.count()));
  socket.set(zmq::sockopt::heartbeat_timeout, static_cast<int>(3 * options.heartbeat.count()));
  socket.set(zmq::sockopt::reconnect_ivl, 50);
  socket.set(zmq::sockopt::reconnect_ivl_max, 1'000);
  socket.set(zmq::sockopt::rcvhwm, kQueue);
  if (options.server_key.empty())
    return;
  socket.set(zmq::sockopt::curve_serverkey, options.server_key);
  socket.set(zmq::sockopt::curve_publickey, options.public_key);
  socket.set(zmq::sockopt::curve_secretkey, options.secret_key);
}

/// A stream and how far the talk about it has come.
struct Session {
  Session(const StreamId& id, std::vector<int64_t> from_seq, Delivery way, size_t room)
      : stream(id), delivery(way), window(static_cast<int32_t>(std::clamp<size_t>(room / 2, 1, kMaxWindow))),
        read(from_seq), order(id, std::move(from_seq), room) {}

  StreamId stream;
  Delivery delivery;
  int32_t window;                  // of a paced one; fits the reader's room
  std::optional<Generate> request; // until it is known to run
  std::vector<int64_t> read;       // the next seq of each choice for the reader
  StreamOrder order;
  bool welcomed = false;           // the subscription is in force
  bool following = false;          // a Follow is in force
  bool doubtful = false;           // the server seems not to know the stream
  bool cancelling = false;         // a Cancel is to be answered
  std::optional<int32_t> replayed; // the choice that a replay runs for
  Clock::time_point heard{};       // anything about it
  Clock::time_point asked{};       // whatever is under way; never: ask at once
  Clock::time_point cancelled{};
  int unanswered = 0; // sendings of the request
  int unread = 0;     // events that were read and not acknowledged
  int64_t repairs = 0;
};

} // namespace

struct Client::State {
  explicit State(const ClientOptions& options);

  std::shared_ptr<Session> open(std::shared_ptr<Session> session);
  void close(const std::shared_ptr<Session>& session);
  /// Waits for frames, handles them and does what time has made due.
  void turn(milliseconds longest);
  void took(Session& session, const StreamEvent& event);
  template <Message M> void send(const M& message);
  /// Repeats a request until `done`, as patience and time allow.
  template <Message M, class Condition> bool ask(const M& request, Time timeout, Condition done);

  const ClientOptions options_;
  std::optional<std::pair<StreamId, std::variant<Snapshot, Rejected>>> looked_;
  std::optional<ServerStats> stats_;

private:
  void flush();
  void receive();
  template <class Handler> void receive(zmq::socket_t& socket, Handler handle);
  void handle_answer(std::string_view frame);
  void handle_event(std::string_view frame);
  void handle(Session& session, const Ack& ack);
  void handle(Session& session, Rejected rejected);
  void handle(Session& session, const Welcome& welcome);
  void join_earlier(const Ack& ack);
  void runs(Session& session);
  void take(Session& session, Event event);

  void step(Session& session, Clock::time_point now);
  void step_broadcast(Session& session, Clock::time_point now);
  void step_paced(Session& session, Clock::time_point now);
  bool due(const Session& session, Clock::time_point now) const {
    return outgoing_.empty() && now - session.asked >= options_.patience;
  }
  template <Message M> void ask_about(Session& session, const M& message, Clock::time_point now);
  void send_request(Session& session, Clock::time_point now);
  void subscribe(Session& session, Clock::time_point now);
  Session* find(const StreamId& stream);

  zmq::context_t context_;
  zmq::socket_t requests_{context_, zmq::socket_type::dealer};
  zmq::socket_t events_{context_, zmq::socket_type::sub};
  std::map<StreamId, std::shared_ptr<Session>> sessions_;
  std::deque<StreamId> generating_;  // in the order in which they were sent, which is that of their answers
  std::deque<std::string> outgoing_; // for a server that is not there yet
};

Client::State::State(const ClientOptions& options) : options_(options) {
  prepare(requests_, options);
  prepare(events_, options);
  requests_.set(zmq::sockopt::immediate, true); // nothing is sent to who is not there
  requests_.connect(options.requests);
  if (!options.events.empty())
    events_.connect(options.events);
}

std::shared_ptr<Session> Client::State::open(std::shared_ptr<Session> session) {
  if (!sessions_.emplace(session->stream, session).second)
    throw std::invalid_argument("this client reads the stream already");
  session->heard = Clock::now();
  if (session->delivery == Delivery::broadcast)
    subscribe(*session, session->heard);
  return session;
}

void Client::State::close(const std::shared_ptr<Session>& session) {
  const auto found = sessions_.find(session->stream);
  if (found == sessions_.end() || found->second != session)
    return; // another handle reads the same stream
  if (session->delivery == Delivery::broadcast)
    events_.set(zmq::sockopt::unsubscribe, topic_of(session->stream));
  sessions_.erase(found);
}

Session* Client::State::find(const StreamId& stream) {
  const auto found = sessions_.find(stream);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void Client::State::turn(milliseconds longest) {
  receive(); // before it is judged who was silent: the reader may have been away
  for (auto& [stream, session] : sessions_)
    step(*session, Clock::now());

  std::array<zmq::pollitem_t, 2> items{
      {{requests_.handle(), 0, static_cast<short>(outgoing_.empty() ? ZMQ_POLLIN : ZMQ_POLLIN | ZMQ_POLLOUT),
        0},
       {events_.handle(), 0, ZMQ_POLLIN, 0}}};
  zmq::poll(items, std::clamp(longest, milliseconds(0), kLongestNap));
  flush();
  receive();
}

void Client::State::flush() {
  while (!outgoing_.empty() && requests_.send(zmq::buffer(outgoing_.front()), zmq::send_flags::dontwait))
    outgoing_.pop_front();
}

void Client::State::receive() {
  receive(requests_, [this](std::string_view frame) { handle_answer(frame); });
  receive(events_, [this](std::string_view frame) { handle_event(frame); });
}

/// The last frame of each message that waits: the only one of an answer, the third of an event.
template <class Handler> void Client::State::receive(zmq::socket_t& socket, Handler handle) {
  for (int i = 0; i < kFramesPerTurn; ++i) {
    zmq::message_t frame;
    if (!socket.recv(frame, zmq::recv_flags::dontwait))
      return;
    while (frame.more() && socket.recv(frame, zmq::recv_flags::dontwait)) {
    }
    handle(frame.to_string_view());
  }
}

template <Message M> void Client::State::send(const M& message) {
  outgoing_.push_back(encode(message));
  flush();
}

template <Message M, class Condition>
bool Client::State::ask(const M& request, Time timeout, Condition done) {
  const auto end = Clock::now() + timeout;
  for (auto asked = Clock::time_point{}; !done(); turn(std::chrono::ceil<milliseconds>(end - Clock::now()))) {
    const auto now = Clock::now();
    if (now >= end)
      break;
    if (outgoing_.empty() && now - asked >= options_.patience) {
      send(request);
      asked = now;
    }
  }
  if (sessions_.empty())
    outgoing_.clear(); // of a server that is not there; a later question is a new one
  return done();
}

// ---- what is due ----

void Client::State::step(Session& session, Clock::time_point now) {
  if (session.order.complete())
    return;
  session.delivery == Delivery::broadcast ? step_broadcast(session, now) : step_paced(session, now);
  if (session.cancelling && outgoing_.empty() && !session.request &&
      now - session.cancelled >= options_.patience) {
    send(Cancel{session.stream});
    session.cancelled = now;
  }
}

template <Message M>
void Client::State::ask_about(Session& session, const M& message, Clock::time_point now) {
  session.repairs += session.asked != Clock::time_point{};
  session.asked = now;
  send(message);
}

void Client::State::send_request(Session& session, Clock::time_point now) {
  if (!due(session, now))
    return;
  generating_.push_back(session.stream);
  ++session.unanswered;
  ask_about(session, *session.request, now);
}

void Client::State::step_broadcast(Session& session, Clock::time_point now) {
  if (!session.welcomed || now - session.heard > 3 * options_.heartbeat) {
    if (now - session.heard > options_.patience) {
      events_.set(zmq::sockopt::unsubscribe, topic_of(session.stream));
      ++session.repairs;
      subscribe(session, now);
    }
    return;
  }
  if (session.request) {
    send_request(session, now);
    return;
  }
  if (session.replayed && !due(session, now))
    return;
  auto missing = session.order.missing();
  if (!missing && session.doubtful) { // an answer clears it up
    const auto next = session.order.next();
    missing = {.choice = 0, .seq = next.empty() ? 0 : next[0]};
  }
  session.replayed.reset();
  if (!missing)
    return;
  session.replayed = missing->choice;
  session.asked = now;
  ++session.repairs;
  send(Replay{.request = session.stream, .choice = missing->choice, .from_seq = missing->seq});
}

void Client::State::step_paced(Session& session, Clock::time_point now) {
  if (session.request) {
    send_request(session, now);
  } else if (!session.following || now - session.heard > 3 * options_.heartbeat) {
    if (due(session, now)) {
      ask_about(session,
                Follow{.request = session.stream, .from_seq = session.read, .window = session.window}, now);
      session.unread = 0;
    }
  }
}

void Client::State::subscribe(Session& session, Clock::time_point now) {
  session.welcomed = false;
  session.heard = now;
  events_.set(zmq::sockopt::subscribe, topic_of(session.stream));
}

/// Credit for a paced stream: what the reader took, not what came.
void Client::State::took(Session& session, const StreamEvent& event) {
  const auto advance = [&](int32_t choice, int64_t next) {
    if (static_cast<size_t>(choice) >= session.read.size())
      session.read.resize(static_cast<size_t>(choice) + 1);
    session.read[static_cast<size_t>(choice)] = next;
    if (session.delivery == Delivery::paced && 2 * ++session.unread >= session.window) {
      send(Read{session.stream, session.read});
      session.unread = 0;
    }
  };
  std::visit(
      [&]<class E>(const E& e) {
        if constexpr (std::is_same_v<E, Token> || std::is_same_v<E, Finished>)
          advance(e.choice, e.seq + 1);
        else if constexpr (std::is_same_v<E, Lagging>)
          advance(e.choice, e.held_seq);
      },
      event);
}

// ---- what comes ----

void Client::State::handle_event(std::string_view frame) {
  const Envelope envelope = read_envelope(frame);
  Session* const session = envelope.request ? find(*envelope.request) : nullptr;
  if (!session || !envelope.type)
    return;
  session->heard = Clock::now();
  if (envelope.type == Welcome::kType) {
    const auto welcome = decode<Welcome>(frame);
    if (const auto* message = std::get_if<Welcome>(&welcome))
      handle(*session, *message);
  } else if (envelope.type == Heartbeat::kType) {
    const auto heartbeat = decode<Heartbeat>(frame);
    if (const auto* message = std::get_if<Heartbeat>(&heartbeat))
      session->order.told(message->next_seq);
  } else if (auto event = decode_event(frame); auto* message = std::get_if<Event>(&event)) {
    take(*session, std::move(*message));
  }
}

void Client::State::handle_answer(std::string_view frame) {
  const Envelope envelope = read_envelope(frame);
  if (envelope.type == ServerStats::kType) {
    auto stats = decode<ServerStats>(frame);
    if (auto* message = std::get_if<ServerStats>(&stats))
      stats_ = std::move(*message);
    return;
  }
  if (!envelope.request || !envelope.type)
    return;
  Session* const session = find(*envelope.request);
  if (session)
    session->heard = Clock::now();
  if (envelope.type == Snapshot::kType) {
    auto snapshot = decode<Snapshot>(frame);
    if (auto* message = std::get_if<Snapshot>(&snapshot))
      looked_.emplace(*envelope.request, std::move(*message));
  } else if (envelope.type == Ack::kType) {
    const auto ack = decode<Ack>(frame);
    if (const auto* message = std::get_if<Ack>(&ack))
      session && !(message->joined && !session->request) ? handle(*session, *message)
                                                         : join_earlier(*message);
  } else if (envelope.type == Lagging::kType) {
    const auto lagging = decode<Lagging>(frame);
    if (const auto* message = std::get_if<Lagging>(&lagging); message && session)
      session->order.skip(*message);
  } else if (envelope.type == Rejected::kType) {
    auto rejected = decode<Rejected>(frame);
    if (auto* message = std::get_if<Rejected>(&rejected)) {
      looked_.emplace(*envelope.request, *message);
      if (session)
        handle(*session, std::move(*message));
    }
  } else if (auto event = decode_event(frame); session) {
    if (auto* message = std::get_if<Event>(&event))
      take(*session, std::move(*message));
  }
}

void Client::State::take(Session& session, Event event) {
  session.request.reset(); // it runs, even if its Ack is still under way or lost
  session.doubtful = false;
  session.order.take(std::move(event));
}

void Client::State::handle(Session& session, const Ack& ack) {
  session.doubtful = false;
  if (ack.of == Generate::kType) {
    runs(session);
    if (ack.joined && session.delivery == Delivery::broadcast) { // what it said before is in the log
      session.welcomed = false;
      events_.set(zmq::sockopt::unsubscribe, topic_of(session.stream));
      subscribe(session, Clock::now());
    }
  } else if (ack.of == Cancel::kType) {
    session.cancelling = false;
  } else if (ack.of == Follow::kType) {
    session.following = true;
  } else if (ack.of == Replay::kType && session.replayed) {
    session.order.replayed(*std::exchange(session.replayed, std::nullopt), ack.from_seq, ack.next_seq);
  }
}

/// The oldest request with a key that is not answered yet was made before, under the id that the answer
/// tells.
void Client::State::join_earlier(const Ack& ack) {
  if (Session* const reader = find(ack.request); reader && reader->unanswered > 0) {
    --reader->unanswered; // its request was sent twice, and joined at the first
    std::erase(generating_, ack.request);
    return;
  }
  const auto waits = [this](const StreamId& stream) {
    const Session* const session = find(stream);
    return session && session->request && session->request->idempotency_key;
  };
  const auto sent = std::ranges::find_if(generating_, waits);
  if (!ack.joined || sent == generating_.end())
    return;

  const std::shared_ptr<Session> session = sessions_.at(*sent);
  if (sessions_.contains(ack.request))
    return handle(*session, Rejected{.request = ack.request,
                                     .error = std::string(to_string(Error::conflict)),
                                     .field = "idempotency_key",
                                     .message = "this client reads the stream already"});
  close(session);
  session->stream = ack.request;
  session->order = StreamOrder(ack.request, {}, options_.room);
  runs(*session);
  open(session);
}

/// The request is with the server.
void Client::State::runs(Session& session) {
  std::erase(generating_, session.request ? session.request->request : session.stream);
  session.unanswered = std::max(session.unanswered - 1, 0);
  session.request.reset();
  session.asked = {};
}

void Client::State::handle(Session& session, Rejected rejected) {
  if (std::exchange(session.following, false) && rejected.error == to_string(Error::busy))
    return; // its reader paused for too long, and goes on from where it stands
  std::erase(generating_, session.stream);
  session.order.take(std::move(rejected));
}

void Client::State::handle(Session& session, const Welcome& welcome) {
  session.welcomed = true;
  session.order.told(welcome.next_seq);
  session.doubtful = !session.request && welcome.next_seq.empty();
  if (session.request && session.asked != Clock::time_point{} && welcome.next_seq.empty())
    session.asked = Clock::now() - options_.patience; // a server that came back has not heard it
}

// ---- the interface ----

struct Client::Stream::State {
  Client::State* client;
  std::shared_ptr<Session> session;
  ~State() { client->close(session); }
};

Client::Client(const ClientOptions& options) : state_(std::make_unique<State>(options)) {}
Client::~Client() = default;

Client::Stream Client::generate(Generate request, Delivery delivery) {
  if (request.request == StreamId{})
    request.request = random_stream_id();
  const auto choices = static_cast<size_t>(std::clamp(request.n, 0, 1024));
  auto session = std::make_shared<Session>(request.request, std::vector<int64_t>(choices), delivery,
                                           state_->options_.room);
  session->request = std::move(request);
  return Stream(std::make_unique<Stream::State>(state_.get(), state_->open(std::move(session))));
}

Client::Stream Client::join(const StreamId& stream, std::vector<int64_t> from_seq, Delivery delivery) {
  auto session = std::make_shared<Session>(stream, std::move(from_seq), delivery, state_->options_.room);
  return Stream(std::make_unique<Stream::State>(state_.get(), state_->open(std::move(session))));
}

std::optional<std::variant<Snapshot, Rejected>> Client::look(const StreamId& stream, Time timeout) {
  state_->looked_.reset();
  if (!state_->ask(Look{stream}, timeout,
                   [&] { return state_->looked_ && state_->looked_->first == stream; }))
    return std::nullopt;
  return std::move(state_->looked_->second);
}

std::optional<ServerStats> Client::stats(int32_t max_requests, Time timeout) {
  state_->stats_.reset();
  if (!state_->ask(Stats{max_requests}, timeout, [&] { return state_->stats_.has_value(); }))
    return std::nullopt;
  return std::move(state_->stats_);
}

Client::Stream::Stream(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::Stream::Stream(Stream&&) noexcept = default;
Client::Stream& Client::Stream::operator=(Stream&&) noexcept = default;
Client::Stream::~Stream() = default;

std::optional<StreamEvent> Client::Stream::next(Time timeout) {
  Session& session = *state_->session;
  const auto end = Clock::now() + timeout;
  while (!session.order.ended()) {
    if (auto event = session.order.pop()) {
      state_->client->took(session, *event);
      return event;
    }
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left <= milliseconds(0))
      return std::nullopt;
    state_->client->turn(left);
  }
  return std::nullopt;
}

bool Client::Stream::ended() const {
  return state_->session->order.ended();
}
void Client::Stream::cancel() {
  state_->session->cancelling = true;
}
StreamId Client::Stream::id() const {
  return state_->session->stream;
}
std::vector<int64_t> Client::Stream::position() const {
  return state_->session->read;
}
int64_t Client::Stream::repairs() const {
  return state_->session->repairs;
}

} // namespace millrace
