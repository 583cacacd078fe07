#include "gateway/gateway.hpp"

#include "gateway/zeromq/door.hpp"

#include <utility>

namespace millrace {

struct Gateway::State {
  State(const GatewayOptions& options, Backend backend)
      : streams({.stream_log_bytes = options.stream_log_bytes,
                 .total_log_bytes = options.total_log_bytes,
                 .log_ttl = options.log_ttl,
                 .log_dir = options.log_dir,
                 .model_fingerprint = options.model_fingerprint,
                 .metrics = options.metrics,
                 .request_log = options.request_log},
                std::move(backend)),
        door({.requests = options.requests,
              .events = options.events,
              .heartbeat = options.heartbeat,
              .log_ttl = options.log_ttl,
              .max_subscriptions = options.max_subscriptions,
              .subscriber_queue = options.subscriber_queue,
              .follow_silence = options.follow_silence,
              .curve = options.curve,
              .allow_remote = options.allow_remote},
             streams) {}

  Streams streams;
  ZeroMqDoor door;
};

Gateway::Gateway(const GatewayOptions& options, Backend backend)
    : state_(std::make_unique<State>(options, std::move(backend))) {}
Gateway::~Gateway() = default;

std::string Gateway::requests_endpoint() const {
  return state_->door.requests_endpoint();
}
std::string Gateway::events_endpoint() const {
  return state_->door.events_endpoint();
}
Streams& Gateway::streams() {
  return state_->streams;
}
void Gateway::resume() {
  state_->streams.resume();
}
void Gateway::publish(const Event& event) {
  state_->streams.publish(event);
}
void Gateway::drain() {
  state_->streams.drain();
}
void Gateway::detach() {
  state_->streams.detach();
}

GatewayStats Gateway::stats() const {
  const ZeroMqDoorStats door = state_->door.stats();
  const StreamsStats streams = state_->streams.stats();
  return {.requests = door.requests,
          .refused_requests = door.refused_requests,
          .unanswered_requests = door.unanswered_requests,
          .undeliverable_replies = door.undeliverable_replies,
          .refused_subscriptions = door.refused_subscriptions,
          .overrun_subscribers = door.overrun_subscribers,
          .published = streams.published,
          .sent = door.sent,
          .unsent = streams.unsent,
          .unexpected_events = streams.unexpected_events,
          .stale_events = streams.stale_events,
          .out_of_order_events = streams.out_of_order_events,
          .log_streams = streams.streams,
          .log_bytes = streams.bytes};
}

} // namespace millrace
