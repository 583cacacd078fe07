#include "gateway/zeromq/publisher.hpp"

#include <msgpack.hpp>

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// A subscription is 17 bytes, and the rest of what a subscriber sends are the commands of the handshake and
// of heartbeats. libzmq keeps each topic a peer sends in a trie of its own, about 30 times as large, before
// we see it.
constexpr int64_t kMaxIncomingFrame = 256;
constexpr int64_t kMaxCurveFrame = 1'024; // its handshake carries keys and the peer's routing id
constexpr int kReceiveQueue = 1'000;
constexpr int kNoDescriptor = -1;

StreamId stream_id(std::string_view topic) {
  StreamId id;
  std::copy(topic.begin(), topic.end(), id.bytes.begin());
  return id;
}

std::string_view topic_of(const zmq::message_t& frame) {
  return frame.to_string_view().substr(1);
}

/// That of the peer's connection, which libzmq knows only for frames that the peer itself sent over a wire.
int descriptor_of(const zmq::message_t& frame) {
  const int descriptor = zmq_msg_get(frame.handle(), ZMQ_SRCFD);
  return descriptor < 0 ? kNoDescriptor : descriptor;
}

/// All frames of a connection share their metadata. Null without a connection.
const void* metadata_address(const zmq::message_t& frame) {
  return zmq_msg_gets(frame.handle(), "__fd");
}

zmq::message_t encode(const EventHeader& header) {
  msgpack::sbuffer buffer(32);
  msgpack::packer packer(buffer);
  packer.pack_array(3).pack(header.choice).pack(header.seq).pack(header.epoch);
  return zmq::message_t(buffer.data(), buffer.size());
}

} // namespace

Publisher::Publisher(zmq::context_t& context, const std::string& endpoint, int queue,
                     size_t max_subscriptions, const SocketAccess& access)
    : socket_(bind_socket(context, zmq::socket_type::xpub, endpoint,
                          {.max_frame_bytes = access.secret_key.empty() ? kMaxIncomingFrame : kMaxCurveFrame,
                           .receive_queue = kReceiveQueue,
                           .send_queue = queue},
                          access)),
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
      unsubscribe(frame);
    } else if (subscribe(frame)) {
      joined(stream_id(topic_of(frame)));
    }
  }
  return true;
}

/// Must directly follow the recv of the frame: libzmq takes the peer from there.
bool Publisher::subscribe(zmq::message_t& frame) {
  const std::string_view name = topic_of(frame);
  Topic& topic = topics_[stream_id(name)];
  const int descriptor = descriptor_of(frame);
  const uint64_t connection = connection_number(descriptor, frame);
  if (std::exchange(topic.askers[descriptor], connection) != connection)
    ++topic.peers;
  if (out_of_step_ || (!topic.in_force && in_force_ >= max_subscriptions_)) {
    ++refused_;
    return false;
  }
  socket_.set(zmq::sockopt::subscribe, name);
  in_force_ += !topic.in_force;
  topic.in_force = true;
  return true;
}

/// A peer that is gone leaves each of its topics once, however often it asked, in frames that name no
/// connection; then all that counts is that the topic has one peer less.
void Publisher::unsubscribe(zmq::message_t& frame) {
  const std::string_view name = topic_of(frame);
  const auto entry = topics_.find(stream_id(name));
  if (entry == topics_.end())
    return;
  Topic& topic = entry->second;
  const int descriptor = descriptor_of(frame);
  const auto asker = topic.askers.find(descriptor);
  const bool asked = asker != topic.askers.end() && asker->second == connection_number(descriptor, frame);
  if (descriptor != kNoDescriptor && !asked)
    return;
  if (asked)
    topic.askers.erase(asker);
  if (!out_of_step_)
    socket_.set(zmq::sockopt::unsubscribe, name);
  if (--topic.peers > 0)
    return;
  in_force_ -= topic.in_force;
  topics_.erase(entry);
}

/// A file descriptor is used again after its connection, the number is not.
uint64_t Publisher::connection_number(int descriptor, zmq::message_t& frame) {
  Connection& connection = connections_[descriptor];
  if (connection.number == 0 || metadata_address(connection.frame) != metadata_address(frame)) {
    connection.frame.copy(frame);
    connection.number = ++last_connection_;
  }
  return connection.number;
}

} // namespace millrace
