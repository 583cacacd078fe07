#pragma once

#include <zmq.hpp>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace millrace {

/// Counts the bytes of answers from when they are made until the kernel takes them or their client has gone,
/// whoever holds them meanwhile: our queues, or those of ZeroMQ, which are bounded in messages alone. Belongs to
/// one thread; what it has counted may end on any, and later than this.
class UnreadBytes {
public:
  /// The same frame, counted for this client.
  zmq::message_t count(const std::string& routing_id, zmq::message_t frame);

  size_t of(const std::string& routing_id) const;
  size_t of_all() const { return *all_; }

private:
  using Bytes = std::atomic<size_t>;
  struct Counted;

  std::shared_ptr<Bytes> all_ = std::make_shared<Bytes>(0);
  std::map<std::string, std::weak_ptr<Bytes>> clients_; // ordered: clients choose their ids
  size_t sweep_at_ = 64; // clients, most of which have read everything by then
};

} // namespace millrace
