#include "gateway/gateway.hpp"
#include "messages/codec.hpp"
#include "tools/load/scenarios.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

// Both sides send the same frames ([topic, header, message], a token's event) of the same streams in the same order to the same
// kind of subscriber, in a process of its own. Bare: prepared frames into an XPUB that waits for its slowest subscriber, which is
// the most that this socket carries without loss. Millrace: events as a pipeline tells them, which are encoded, logged and
// published; what the socket drops is replayed, and counts when it has arrived.

namespace millrace::load {
namespace {

constexpr int kQueue = 10'000; // events that wait for one subscriber, as in GatewayOptions
constexpr auto kPatience = std::chrono::milliseconds(200);

StreamId stream_of(int index) {
  StreamId id;
  std::memcpy(id.bytes.data(), &index, sizeof index);
  id.bytes[15] = 0x5a;
  return id;
}

Token token_of(int stream, int64_t seq) {
  Token token;
  token.request = stream_of(stream);
  token.seq = seq;
  token.id = 262;
  token.bytes = {" the"};
  token.text = " the";
  token.logprob = -0.25f;
  return token;
}

struct Result {
  int64_t events = 0; // of all subscribers, each counted once
  int64_t repaired = 0;
  int64_t missing = 0;
  double seconds = 0; // from the first event to the last
};

/// A line between two processes.
class Pipe {
public:
  Pipe() {
    if (pipe(ends_.data()) != 0)
      throw std::runtime_error("no pipe");
  }
  template <class T> void send(const T& value) {
    if (write(ends_[1], &value, sizeof value) != sizeof value)
      throw std::runtime_error("the other process has gone");
  }
  template <class T> T receive() {
    T value;
    if (read(ends_[0], &value, sizeof value) != sizeof value)
      throw std::runtime_error("the other process has gone");
    return value;
  }

private:
  std::array<int, 2> ends_{};
};

struct Endpoints {
  char requests[64] = "";
  char events[64] = "";
};

// ---- the subscribers' process ----

class Subscriber {
public:
  Subscriber(zmq::context_t& context, const Endpoints& endpoints, const PublishOptions& options, int64_t per_stream)
      : events_(context, ZMQ_SUB), replays_(context, ZMQ_DEALER), per_stream_(per_stream),
        next_(static_cast<size_t>(options.streams), 0), welcomed_(next_.size()) {
    events_.set(zmq::sockopt::rcvhwm, kQueue);
    events_.set(zmq::sockopt::linger, 0);
    events_.connect(endpoints.events);
    for (int i = 0; i < options.streams; ++i)
      events_.set(zmq::sockopt::subscribe, topic(i));
    replays_.set(zmq::sockopt::linger, 0);
    if (endpoints.requests[0])
      replays_.connect(endpoints.requests);
  }

  zmq::socket_t& events() { return events_; }
  bool welcome() const { return welcomes_ == next_.size(); }
  bool complete() const { return complete_ == next_.size(); }
  int64_t received() const { return received_; }
  int64_t repaired() const { return repaired_; }
  int64_t missing() const { return static_cast<int64_t>(next_.size()) * per_stream_ - received_; }

  /// Takes what waits, at most so many.
  void take(int limit) {
    for (int i = 0; i < limit; ++i) {
      if (!events_.recv(topic_, zmq::recv_flags::dontwait))
        return;
      (void)events_.recv(header_);
      (void)events_.recv(body_);
      // msgpack [choice, seq, epoch]: choice is one byte, seq in one of four widths.
      const auto* header = header_.data<uint8_t>();
      int64_t seq = -1;
      if (header[2] < 0x80)
        seq = header[2];
      else if (header[2] == 0xcc)
        seq = header[3];
      else if (header[2] == 0xcd)
        seq = header[3] << 8 | header[4];
      else if (header[2] == 0xce)
        seq = int64_t{header[3]} << 24 | header[4] << 16 | header[5] << 8 | header[6];
      const size_t stream = index_of(topic_);
      if (seq >= 0)
        take_event(stream, seq);
      else if (!welcomed_[stream]) // the first thing that a subscription in force brings
        welcomed_[stream] = (++welcomes_, true);
    }
  }

  /// Asks for what is missing, stream by stream.
  void repair() {
    for (size_t i = 0; i < next_.size(); ++i)
      if (next_[i] < per_stream_) {
        const Replay replay{.request = stream_of(static_cast<int>(i)), .from_seq = next_[i]};
        replays_.send(zmq::buffer(encode(replay)), zmq::send_flags::none);
        zmq::message_t frame;
        while (true) {
          zmq::pollitem_t item{replays_.handle(), 0, ZMQ_POLLIN, 0};
          if (zmq::poll(&item, 1, std::chrono::seconds(10)) == 0)
            return;
          (void)replays_.recv(frame);
          auto token = decode<Token>(frame.to_string_view());
          if (!std::holds_alternative<Token>(token))
            break; // the Ack that ends the replay, or a refusal
          if (std::get<Token>(token).seq == next_[i])
            ++repaired_;
          take_event(i, std::get<Token>(token).seq);
        }
      }
  }

private:
  static std::string topic(int stream) {
    const StreamId id = stream_of(stream);
    return {reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()};
  }
  static size_t index_of(const zmq::message_t& topic) {
    int index;
    std::memcpy(&index, topic.data(), sizeof index);
    return static_cast<size_t>(index);
  }
  /// In order or not at all: what comes behind a gap is asked for again.
  void take_event(size_t stream, int64_t seq) {
    if (seq != next_[stream])
      return;
    ++received_;
    if (++next_[stream] == per_stream_)
      ++complete_;
  }

  zmq::socket_t events_, replays_;
  int64_t per_stream_;
  std::vector<int64_t> next_;
  std::vector<bool> welcomed_;
  size_t welcomes_ = 0, complete_ = 0;
  int64_t received_ = 0, repaired_ = 0;
  zmq::message_t topic_, header_, body_;
};

Result subscribe(const Endpoints& endpoints, const PublishOptions& options, int64_t per_stream, Pipe& ready) {
  zmq::context_t context;
  std::vector<std::unique_ptr<Subscriber>> subscribers;
  std::vector<zmq::pollitem_t> items;
  for (int i = 0; i < options.subscribers; ++i) {
    subscribers.push_back(std::make_unique<Subscriber>(context, endpoints, options, per_stream));
    items.push_back({subscribers.back()->events().handle(), 0, ZMQ_POLLIN, 0});
  }
  const auto all = [&](bool (Subscriber::*state)() const) {
    return std::all_of(subscribers.begin(), subscribers.end(), [&](const auto& subscriber) { return (*subscriber.*state)(); });
  };
  while (endpoints.requests[0] && !all(&Subscriber::welcome)) {
    zmq::poll(items, kPatience);
    for (auto& subscriber : subscribers)
      subscriber->take(256);
  }
  ready.send('r');

  Clock::time_point first{}, last{};
  while (!all(&Subscriber::complete)) {
    if (zmq::poll(items, kPatience) == 0) {
      if (first == Clock::time_point{})
        continue;
      if (!endpoints.requests[0])
        break;
      for (auto& subscriber : subscribers)
        subscriber->repair();
      last = Clock::now();
      continue;
    }
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].revents)
        subscribers[i]->take(256);
    if (first == Clock::time_point{} && subscribers[0]->received() > 0)
      first = Clock::now();
    last = Clock::now();
  }
  Result result{.seconds = std::chrono::duration<double>(last - first).count()};
  for (const auto& subscriber : subscribers) {
    result.events += subscriber->received();
    result.repaired += subscriber->repaired();
    result.missing += subscriber->missing();
  }
  return result;
}

// ---- the publishing process ----

double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Frames that are ready, so that the socket is all that is measured.
double publish_bare(const PublishOptions& options, int64_t per_stream, const std::function<void(const Endpoints&)>& listening) {
  zmq::context_t context;
  zmq::socket_t socket(context, ZMQ_XPUB);
  socket.set(zmq::sockopt::sndhwm, kQueue);
  socket.set(zmq::sockopt::xpub_verbose, true);
  socket.set(zmq::sockopt::xpub_nodrop, true);
  socket.bind("tcp://127.0.0.1:*");
  Endpoints endpoints;
  std::strncpy(endpoints.events, socket.get(zmq::sockopt::last_endpoint).c_str(), sizeof endpoints.events - 1);
  listening(endpoints);
  for (int i = 0; i < options.streams * options.subscribers; ++i) {
    zmq::message_t subscription;
    (void)socket.recv(subscription);
  }

  std::vector<std::string> topics, bodies;
  for (int i = 0; i < options.streams; ++i) {
    const StreamId id = stream_of(i);
    topics.emplace_back(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
    bodies.push_back(encode(token_of(i, 70'000)));
  }
  const double before = cpu_seconds();
  for (int64_t seq = 0; seq < per_stream; ++seq) {
    const std::array<uint8_t, 8> header{0x93, 0, 0xce, static_cast<uint8_t>(seq >> 24), static_cast<uint8_t>(seq >> 16),
                                        static_cast<uint8_t>(seq >> 8), static_cast<uint8_t>(seq), 0};
    for (int i = 0; i < options.streams; ++i) {
      socket.send(zmq::buffer(topics[static_cast<size_t>(i)]), zmq::send_flags::sndmore);
      socket.send(zmq::buffer(header), zmq::send_flags::sndmore);
      socket.send(zmq::buffer(bodies[static_cast<size_t>(i)]), zmq::send_flags::none);
    }
  }
  socket.close();
  context.close(); // when all is sent
  return cpu_seconds() - before;
}

double publish_millrace(const PublishOptions& options, int64_t per_stream, const std::function<void(const Endpoints&)>& listening,
                        const std::function<void()>& wait_for_readers) {
  Gateway gateway({.requests = "tcp://127.0.0.1:0",
                   .events = "tcp://127.0.0.1:0",
                   .stream_log_bytes = size_t{1} << 30,
                   .total_log_bytes = size_t{4} << 30,
                   .subscriber_queue = kQueue},
                  {.submit = [](Generate) { return std::optional<Failure>(); }, .cancel = [](const StreamId&) {}});
  Endpoints endpoints;
  std::strncpy(endpoints.requests, gateway.requests_endpoint().c_str(), sizeof endpoints.requests - 1);
  std::strncpy(endpoints.events, gateway.events_endpoint().c_str(), sizeof endpoints.events - 1);

  zmq::context_t context;
  zmq::socket_t client(context, ZMQ_DEALER);
  client.connect(endpoints.requests);
  for (int i = 0; i < options.streams; ++i) {
    Generate request;
    request.request = stream_of(i);
    request.prompt = "x";
    client.send(zmq::buffer(encode(request)), zmq::send_flags::none);
    zmq::message_t answer;
    (void)client.recv(answer);
  }
  listening(endpoints);

  const double before = cpu_seconds();
  uint64_t told = 0;
  for (int64_t seq = 0; seq < per_stream; ++seq)
    for (int i = 0; i < options.streams; ++i) {
      gateway.publish(token_of(i, seq));
      // A pipeline waits for its device; this one waits for the door, so that the queue between them stays short.
      if (++told % 1024 == 0)
        while (told - gateway.stats().sent > 8 * 1024)
          std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  while (gateway.stats().sent < told)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  wait_for_readers();
  return cpu_seconds() - before;
}

struct Round {
  Result result;
  double cpu = 0;
  double rate() const { return static_cast<double>(result.events) / result.seconds; }
};

/// The subscribers live in a child, so that the CPU time of the publisher is its own.
Round run_round(bool bare, const PublishOptions& options) {
  const int64_t per_stream = options.events / options.streams;
  Pipe to_child, ready, results;
  const pid_t child = fork();
  if (child < 0)
    throw std::runtime_error("no second process");
  if (child == 0) {
    int code = 1;
    try {
      results.send(subscribe(to_child.receive<Endpoints>(), options, per_stream, ready));
      code = 0;
    } catch (const std::exception& error) {
      say("subscriber: %s", error.what());
    }
    _exit(code);
  }
  Round round;
  const auto listening = [&](const Endpoints& endpoints) {
    to_child.send(endpoints);
    ready.receive<char>();
  };
  if (bare) {
    round.cpu = publish_bare(options, per_stream, listening);
    round.result = results.receive<Result>();
  } else {
    round.cpu = publish_millrace(options, per_stream, listening, [&] { round.result = results.receive<Result>(); });
  }
  waitpid(child, nullptr, 0);
  const double events = static_cast<double>(per_stream * options.streams);
  round.result.events /= options.subscribers; // each event went to all of them
  round.cpu = 1e6 * round.cpu / events;
  say("  %-8s %9.0f events/s to each, %.2f us of CPU per event, %lld repaired, %lld missing", bare ? "bare" : "millrace", round.rate(),
      round.cpu, static_cast<long long>(round.result.repaired), static_cast<long long>(round.result.missing));
  return round;
}

} // namespace

bool run_publish(const PublishOptions& options) {
  say("%d subscriber%s, %lld events of %d streams, frame of %zu bytes, side by side:", options.subscribers,
      options.subscribers == 1 ? "" : "s", static_cast<long long>(options.events), options.streams, encode(token_of(0, 70'000)).size());
  Samples bare, ours, shares, cpu;
  bool whole = true;
  for (int i = 0; i < options.rounds; ++i) {
    const Round first = run_round(true, options), second = run_round(false, options);
    bare.add(first.rate());
    ours.add(second.rate());
    shares.add(second.rate() / first.rate());
    cpu.add(second.cpu);
    whole = whole && second.result.missing == 0;
  }
  say("median: bare %.0f/s, millrace %.0f/s, ratio %.2f, %.2f us of CPU per event in the gateway's process, %s", bare.quantile(0.5),
      ours.quantile(0.5), shares.quantile(0.5), cpu.quantile(0.5), whole ? "nothing lost" : "EVENTS LOST");
  return whole;
}

} // namespace millrace::load
