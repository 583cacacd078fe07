#pragma once

#include "gateway/gateway.hpp"
#include "tests/gateway/peers.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace millrace::test {

/// A backend that takes everything, or nothing if it is given a refusal; the test publishes what a pipeline
/// would.
class FakeBackend {
public:
  Backend interface() {
    return {.submit =
                [this](Generate request) {
                  const std::lock_guard lock(mutex_);
                  submitted_.push_back(std::move(request));
                  return refusal_;
                },
            .cancel =
                [this](const StreamId& request) {
                  const std::lock_guard lock(mutex_);
                  cancelled_.push_back(request);
                }};
  }
  void refuse_with(Failure failure) {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(failure);
  }
  std::vector<Generate> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  std::vector<StreamId> cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

private:
  mutable std::mutex mutex_;
  std::optional<Failure> refusal_;
  std::vector<Generate> submitted_;
  std::vector<StreamId> cancelled_;
};

inline Generate generate(uint8_t name, int32_t n = 1) {
  Generate request;
  request.request = stream(name);
  request.prompt = "Once upon a time";
  request.n = n;
  return request;
}

inline Token token(uint8_t name, int64_t seq, int32_t choice = 0, uint32_t epoch = 0, size_t text_bytes = 0) {
  Token event;
  event.request = stream(name);
  event.choice = choice;
  event.epoch = epoch;
  event.seq = seq;
  event.id = static_cast<TokenId>(seq % 32'000);
  event.text = " token " + std::to_string(seq);
  event.text.resize(std::max(event.text.size(), text_bytes), '.');
  event.bytes.data = event.text;
  return event;
}

inline Finished finished(uint8_t name, int64_t seq, int32_t choice = 0) {
  Finished event;
  event.request = stream(name);
  event.choice = choice;
  event.seq = seq;
  event.reason = "stop";
  return event;
}

inline Done done(uint8_t name) {
  Done event;
  event.request = stream(name);
  return event;
}

/// A gateway on free loopback ports with a fake backend, and clients for it.
class GatewayTest : public testing::Test {
protected:
  /// A test that wants other options changes options_ before it calls this.
  void start() { gateway_.emplace(options_, backend_.interface()); }

  Subscriber subscriber(std::initializer_list<std::string> topics, Subscriber::Room room = {1'000, 0}) {
    return Subscriber(context_, gateway_->events_endpoint(), topics, room);
  }
  Subscriber subscriber(uint8_t name) { return subscriber({bytes_of(stream(name))}); }
  Requester requester(zmq::socket_type type = zmq::socket_type::dealer, int queue = 1'000) {
    return Requester(context_, gateway_->requests_endpoint(), type, queue);
  }

  /// Tokens 0 … n - 1 of choice 0, Finished and Done.
  void publish_whole(uint8_t name, int64_t n, size_t text_bytes = 0) {
    for (int64_t seq = 0; seq < n; ++seq)
      gateway_->publish(token(name, seq, 0, 0, text_bytes));
    gateway_->publish(finished(name, n));
    gateway_->publish(done(name));
  }

  GatewayOptions options_{.requests = "tcp://127.0.0.1:*", .events = "tcp://127.0.0.1:*"};
  FakeBackend backend_;
  zmq::context_t context_;
  std::optional<Gateway> gateway_;
};

} // namespace millrace::test
