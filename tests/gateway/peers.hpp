#pragma once

// The other ends of the gateway's sockets. Whoever waits here has a deadline, after which the test fails.

#include "messages/codec.hpp"

#include <gtest/gtest.h>
#include <msgpack.hpp>
#include <zmq.hpp>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

namespace millrace::test {

inline constexpr std::chrono::milliseconds kDeadline{30'000};

inline StreamId stream(uint8_t name) {
  StreamId id;
  id.bytes.fill(name);
  return id;
}

inline std::string bytes_of(const StreamId& id) {
  return {id.bytes.begin(), id.bytes.end()};
}

/// A decoded message; throws if the frame is another or none.
template <Message M> M as(std::string_view frame) {
  auto result = decode<M>(frame);
  if (const auto* failure = std::get_if<Failure>(&result))
    throw std::runtime_error("not a " + std::string(M::kType) + ": " + failure->field + " " +
                             failure->message);
  return std::get<M>(std::move(result));
}

template <Message M> bool is(std::string_view frame) {
  return read_envelope(frame).type == M::kType;
}

/// Asks until it is so.
inline bool eventually(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + kDeadline; std::chrono::steady_clock::now() < end;)
    if (condition())
      return true;
  return false;
}

struct Delivered {
  StreamId topic;
  int32_t choice;
  int64_t seq;
  uint32_t epoch;
  std::string body;
};

/// What is done to a socket before it connects.
using SocketSetup = std::function<void(zmq::socket_t&)>;

/// Reads topics of the XPUB socket.
class Subscriber {
public:
  struct Room { // what it holds while it does not read; 0: the default
    int messages = 1'000;
    int bytes = 0;
  };
  Subscriber(zmq::context_t& context, const std::string& endpoint, std::initializer_list<std::string> topics,
             Room room = {1'000, 0}, const SocketSetup& set_up = {})
      : socket_(context, zmq::socket_type::sub) {
    if (set_up)
      set_up(socket_);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvhwm, room.messages);
    if (room.bytes > 0)
      socket_.set(zmq::sockopt::rcvbuf, room.bytes);
    for (const std::string& topic : topics)
      subscribe(topic);
    socket_.connect(endpoint);
  }

  void subscribe(const std::string& topic) { socket_.set(zmq::sockopt::subscribe, topic); }
  void unsubscribe(const std::string& topic) { socket_.set(zmq::sockopt::unsubscribe, topic); }

  /// nullopt if nothing comes within the time.
  std::optional<Delivered> next_within(std::chrono::milliseconds time) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(time.count()));
    zmq::message_t topic, header, body;
    if (!socket_.recv(topic))
      return std::nullopt;
    if (!topic.more() || !socket_.recv(header) || !header.more() || !socket_.recv(body) || body.more())
      throw std::runtime_error("an event has three frames");
    Delivered delivered{};
    if (topic.size() != sizeof delivered.topic.bytes)
      throw std::runtime_error("a topic has 16 bytes");
    std::memcpy(delivered.topic.bytes.data(), topic.data(), topic.size());
    msgpack::object_handle handle = msgpack::unpack(header.data<char>(), header.size());
    std::tuple<int32_t, int64_t, uint32_t> fields;
    handle.get().convert(fields);
    std::tie(delivered.choice, delivered.seq, delivered.epoch) = fields;
    delivered.body = body.to_string();
    return delivered;
  }

  Delivered next() {
    auto delivered = next_within(kDeadline);
    if (!delivered)
      throw std::runtime_error("no event came");
    return *std::move(delivered);
  }

  template <Message M> M expect() { return as<M>(next().body); }

private:
  zmq::socket_t socket_;
};

/// Talks to the ROUTER socket.
class Requester {
public:
  Requester(zmq::context_t& context, const std::string& endpoint,
            zmq::socket_type type = zmq::socket_type::dealer, int queue = 1'000, const SocketSetup& set_up = {})
      : socket_(context, type) {
    if (set_up)
      set_up(socket_);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvhwm, queue);
    socket_.set(zmq::sockopt::sndtimeo, static_cast<int>(kDeadline.count()));
    socket_.connect(endpoint);
  }

  void send_frames(std::initializer_list<std::string> frames) {
    size_t left = frames.size();
    for (const std::string& frame : frames)
      if (!socket_.send(zmq::buffer(frame), --left ? zmq::send_flags::sndmore : zmq::send_flags::none))
        throw std::runtime_error("a request could not be sent");
  }
  template <Message M> void send(const M& message) { send_frames({encode(message)}); }

  std::optional<std::string> next_within(std::chrono::milliseconds time) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(time.count()));
    zmq::message_t frame;
    if (!socket_.recv(frame))
      return std::nullopt;
    if (frame.more())
      throw std::runtime_error("an answer has one frame");
    return frame.to_string();
  }

  std::string next() {
    auto frame = next_within(kDeadline);
    if (!frame)
      throw std::runtime_error("no answer came");
    return *std::move(frame);
  }

  template <Message M> M expect() { return as<M>(next()); }
  template <Message Answer, Message M> Answer ask(const M& message) {
    send(message);
    return expect<Answer>();
  }

private:
  zmq::socket_t socket_;
};

} // namespace millrace::test
