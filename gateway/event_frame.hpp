#pragma once

#include "gateway/stream_log.hpp"
#include "messages/stream.hpp"

namespace millrace {

/// An event as it is logged and sent, encoded once for all readers.
LoggedEvent to_logged(const Event& event);

/// The header of an event on the XPUB socket: msgpack [choice, seq, epoch], in the bytes of a message itself.
zmq::message_t header_frame(const SequenceId& sequence, int64_t seq);

/// A message of the gateway's own.
template <Message M> zmq::message_t to_frame(const M& message);

} // namespace millrace
