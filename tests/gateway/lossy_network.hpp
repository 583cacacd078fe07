#pragma once

// Stands between a client and a gateway and loses what the test says.

#include "gateway/gateway.hpp"
#include "messages/codec.hpp"

#include <zmq.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace millrace::test {

/// Of one client. Whole messages only: a subscription is never lost, as over TCP.
class LossyNetwork {
public:
  /// Told the type of each message; true loses it.
  using Loses = std::function<bool(std::string_view type)>;

  LossyNetwork(const Gateway& gateway, Loses loses) : loses_(std::move(loses)) {
    for (zmq::socket_t* socket : {&client_requests_, &gateway_requests_, &client_events_, &gateway_events_})
      socket->set(zmq::sockopt::linger, 0);
    client_requests_.bind("tcp://127.0.0.1:*");
    client_events_.bind("tcp://127.0.0.1:*");
    requests_endpoint_ = client_requests_.get(zmq::sockopt::last_endpoint);
    events_endpoint_ = client_events_.get(zmq::sockopt::last_endpoint);
    gateway_requests_.connect(gateway.requests_endpoint());
    gateway_events_.connect(gateway.events_endpoint());
    thread_ = std::thread([this] { run(); });
  }
  ~LossyNetwork() {
    stopping_ = true;
    thread_.join();
  }

  const std::string& requests_endpoint() const { return requests_endpoint_; }
  const std::string& events_endpoint() const { return events_endpoint_; }
  void lose(Loses loses) {
    const std::lock_guard lock(mutex_);
    loses_ = std::move(loses);
  }

private:
  using Frames = std::vector<zmq::message_t>;

  void run() {
    std::array<zmq::pollitem_t, 4> items{{{client_requests_.handle(), 0, ZMQ_POLLIN, 0},
                                          {gateway_requests_.handle(), 0, ZMQ_POLLIN, 0},
                                          {client_events_.handle(), 0, ZMQ_POLLIN, 0},
                                          {gateway_events_.handle(), 0, ZMQ_POLLIN, 0}}};
    while (!stopping_) {
      zmq::poll(items, std::chrono::milliseconds(5));
      for (Frames frames; receive(client_requests_, frames);) {
        client_ = frames[0].to_string();
        frames.erase(frames.begin());
        if (!lost(frames.back()))
          send(gateway_requests_, frames);
      }
      for (Frames frames; receive(gateway_requests_, frames);) {
        if (lost(frames.back()))
          continue;
        frames.insert(frames.begin(), zmq::message_t(client_));
        send(client_requests_, frames);
      }
      for (Frames frames; receive(client_events_, frames);)
        send(gateway_events_, frames);
      for (Frames frames; receive(gateway_events_, frames);)
        if (!lost(frames.back()))
          send(client_events_, frames);
    }
  }

  static bool receive(zmq::socket_t& socket, Frames& frames) {
    frames.clear();
    do {
      frames.emplace_back();
      if (!socket.recv(frames.back(), zmq::recv_flags::dontwait))
        return false;
    } while (frames.back().more());
    return true;
  }
  static void send(zmq::socket_t& socket, Frames& frames) {
    for (size_t i = 0; i < frames.size(); ++i)
      if (!socket.send(frames[i], (i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none) |
                                      zmq::send_flags::dontwait))
        return;
  }
  bool lost(const zmq::message_t& frame) {
    const std::lock_guard lock(mutex_);
    const auto type = read_envelope(frame.to_string_view()).type;
    return type && loses_(*type);
  }

  std::mutex mutex_; // of loses_
  Loses loses_;
  zmq::context_t context_;
  zmq::socket_t client_requests_{context_, zmq::socket_type::router};
  zmq::socket_t gateway_requests_{context_, zmq::socket_type::dealer};
  zmq::socket_t client_events_{context_, zmq::socket_type::xpub};
  zmq::socket_t gateway_events_{context_, zmq::socket_type::xsub};
  std::string requests_endpoint_, events_endpoint_, client_;
  std::atomic<bool> stopping_{false};
  std::thread thread_; // last: it begins when all else is there
};

} // namespace millrace::test
