#include "gateway/zeromq/unread_bytes.hpp"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kOverhead = 256; // of a message, besides its bytes

} // namespace

struct UnreadBytes::Counted {
  zmq::message_t frame;
  std::shared_ptr<Bytes> client, all;
  size_t bytes = frame.size() + kOverhead;

  Counted(zmq::message_t held, std::shared_ptr<Bytes> client_in, std::shared_ptr<Bytes> all_in)
      : frame(std::move(held)), client(std::move(client_in)), all(std::move(all_in)) {
    *client += bytes;
    *all += bytes;
  }
  ~Counted() {
    *client -= bytes;
    *all -= bytes;
  }
};

zmq::message_t UnreadBytes::count(const std::string& routing_id, zmq::message_t frame) {
  if (clients_.size() >= sweep_at_) {
    std::erase_if(clients_, [](const auto& client) { return client.second.expired(); });
    sweep_at_ = std::max(sweep_at_, 2 * clients_.size());
  }
  std::weak_ptr<Bytes>& known = clients_[routing_id];
  std::shared_ptr<Bytes> client = known.lock();
  if (!client)
    known = client = std::make_shared<Bytes>(0);

  auto counted = std::make_unique<Counted>(std::move(frame), std::move(client), all_);
  zmq::message_t& held = counted->frame;
  zmq::message_t reference(
      held.data(), held.size(), [](void*, void* hint) { delete static_cast<Counted*>(hint); }, counted.get());
  counted.release(); // to the reference
  return reference;
}

size_t UnreadBytes::of(const std::string& routing_id) const {
  const auto client = clients_.find(routing_id);
  const std::shared_ptr<Bytes> bytes = client == clients_.end() ? nullptr : client->second.lock();
  return bytes ? bytes->load() : 0;
}

} // namespace millrace
