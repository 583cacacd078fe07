#pragma once

// The one place where ZeroMQ sockets are made. libzmq's own defaults wait for ever on close, take messages of
// any size and let a half-open peer stay for 30 seconds.

#include "gateway/principal.hpp"

#include <zmq.hpp>

#include <cstdint>
#include <string>

namespace millrace {

/// What one peer of a listening socket may make it hold.
struct SocketLimits {
  int64_t max_frame_bytes; // incoming; libzmq cuts off who sends more, without an answer
  int receive_queue;       // messages
  int send_queue;          // messages; when they wait, a ROUTER says EAGAIN and an XPUB drops
};

/// Who may reach a listening socket.
struct SocketAccess {
  std::string secret_key =
      {}; // CURVE, in Z85: only clients with a key that ZAP allows; empty: anybody who reaches it
  bool allow_remote = false; // endpoints that other machines reach; they need a key, too
};

/// A context whose destructor does not wait for unsent messages longer than the sockets' linger.
/// Throws std::runtime_error if the libzmq that was loaded has known holes (older than 4.3.4).
zmq::context_t make_context();

/// Passes tcp:// at 127.x.x.x or [::1] with a port (0 or * picks a free one) and ipc:// with a path, which
/// nobody but this machine can reach; and tcp:// at any other address if access allows it and has a key.
/// Throws std::system_error (permission_denied or invalid_argument) that names the endpoint.
void check_endpoint(const std::string& endpoint, const SocketAccess& access = {});

/// A socket bound to such an endpoint. Throws std::system_error that names it; an ipc path that a living
/// server answers on, or that is another kind of file, is refused too (libzmq would remove it).
zmq::socket_t bind_socket(zmq::context_t& context, zmq::socket_type type, const std::string& endpoint,
                          const SocketLimits& limits, const SocketAccess& access = {});

/// Who sent a frame: "curve:" and the key that ZAP vouched for, if the socket has keys; else nobody, since a
/// peer may call itself anything.
Principal sender_of(const zmq::message_t& frame, bool authenticated);

/// Where a socket listens, with the port that was picked.
std::string bound_endpoint(const zmq::socket_t& socket);

} // namespace millrace
