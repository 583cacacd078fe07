#include "gateway/publisher.hpp"

#include <msgpack.hpp>

#include <algorithm>

namespace millrace {
namespace {

// A subscription is 17 bytes, and the rest of what a subscriber sends are the commands of the handshake and
// of heartbeats. libzmq keeps each topic a peer sends in a trie of its own, about 30 times as large, before
// we see it.
constexpr int64_t kMaxIncomingFrame = 256;
constexpr int kReceiveQueue = 1'000;

StreamId stream_id(std::string_view topic) {
  StreamId id;
  std::copy(topic.begin(), topic.end(), id.bytes.begin());
  return id;
}

zmq::message_t encode(const EventHeader& header) {
  msgpack::sbuffer buffer(32);
  msgpack::packer packer(buffer);
  packer.pack_array(3).pack(header.choice).pack(header.seq).pack(header.epoch);
  return zmq::message_t(buffer.data(), buffer.size());
}

} // namespace

Publisher::Publisher(zmq::context_t& context, const std::string& endpoint, int queue,
                     size_t max_subscriptions)
    : socket_(bind_socket(
          context, zmq::socket_type::xpub, endpoint,
          {.max_frame_bytes = kMaxIncomingFrame, .receive_queue = kReceiveQueue, .send_queue = queue})),
      max_subscriptions_(max_subscriptions) {}

void Publisher::publish(const StreamId& stream, const EventHeader& header, zmq::message_t& body) {
  zmq::message_t reference;
  reference.copy(body);
  socket_.send(zmq::buffer(stream.bytes), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
  socket_.send(encode(header), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
  socket_.send(reference, zmq::send_flags::dontwait);
}

bool Publisher::admit(size_t limit, const std::function<void(const StreamId&)>& joined) {
  zmq::message_t frame;
  for (size_t i = 0; i < limit; ++i) {
    if (!socket_.recv(frame, zmq::recv_flags::dontwait)) {
      out_of_step_ = false;
      return false;
    }
    const std::string_view bytes = frame.to_string_view();
    const bool subscription = !bytes.empty() && (bytes[0] == 0 || bytes[0] == 1) && !frame.more();
    // A peer may also send frames that are no subscriptions. For these libzmq 4.3 queues data but no peer,
    // and as long as the queue isn't empty it pairs later subscriptions with the wrong peer, who would then
    // read a foreign stream. So nobody joins until the queue was empty; who gets no Welcome subscribes again.
    if (!subscription)
      out_of_step_ = true;
    if (!subscription || bytes.size() != 1 + sizeof(StreamId::bytes)) {
      ++refused_;
    } else if (bytes[0] == 0) {
      unsubscribe(bytes.substr(1));
    } else if (subscribe(bytes.substr(1))) {
      joined(stream_id(bytes.substr(1)));
    }
  }
  return true;
}

/// Must directly follow the recv of the frame: libzmq takes the peer from there.
bool Publisher::subscribe(std::string_view topic) {
  if (out_of_step_ || subscriptions_ >= max_subscriptions_) {
    ++refused_;
    return false;
  }
  socket_.set(zmq::sockopt::subscribe, topic);
  ++subscribers_[stream_id(topic)];
  ++subscriptions_;
  return true;
}

void Publisher::unsubscribe(std::string_view topic) {
  if (!out_of_step_)
    socket_.set(zmq::sockopt::unsubscribe, topic);
  const auto entry = subscribers_.find(stream_id(topic));
  if (entry == subscribers_.end())
    return;
  --subscriptions_;
  if (--entry->second == 0)
    subscribers_.erase(entry);
}

} // namespace millrace
