#pragma once

#include "gateway/stream_log.hpp"
#include "messages/stream.hpp"

#include <array>
#include <cstddef>

namespace millrace {

/// An event as it is logged and sent, encoded once for all readers.
LoggedEvent to_logged(const Event& event);

/// The header of an event on the XPUB socket: msgpack [choice, seq, epoch].
struct EventHeader {
  std::array<unsigned char, 20> bytes; // no more than a message holds without memory of its own
  size_t size = 0;
};
EventHeader event_header(const SequenceId& sequence, int64_t seq);

/// A message of the gateway's own.
template <Message M> zmq::message_t to_frame(const M& message);

} // namespace millrace
