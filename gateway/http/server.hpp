#pragma once

// The transport: listens, speaks HTTP/1.1 and TLS, bounds what a peer may cost, knows keys. One thread, one
// event loop.

#include "gateway/http/exchange.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace millrace::http {

/// An answer that has left, or will not: for logs and metrics.
struct Answered {
  const Request& request;            // as far as it was understood
  int status;                        // 0: the peer left before there was one
  uint64_t bytes;                    // that the peer's socket took
  std::chrono::nanoseconds duration; // from the request's first byte
  bool whole;                        // false: the peer left, or was cut
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;                   // 0 picks a free one
  bool allow_remote = false;              // an address that is not loopback; needs API keys and TLS then
  std::filesystem::path certificate = {}; // PEM chain; with key: TLS
  std::filesystem::path private_key = {};
  std::filesystem::path api_keys =
      {}; // a file with one "name key" or "key" a line, # for comments; must be readable by its owner alone
  size_t max_connections =
      12'000; // and 128 fewer than the process may have descriptors; beyond it, who idles longest is cut
  size_t max_header_bytes = 16u << 10;
  size_t max_body_bytes = 8u << 20;
  size_t max_total_body_bytes = 256u << 20; // of all requests that are read or answered; beyond it: 503
  size_t max_queued_bytes =
      1u << 20; // of one answer that comes in pieces; a handler that lets more wait loses its peer
  std::chrono::milliseconds header_timeout{15'000}; // from a request's first byte to the end of its head
  std::chrono::milliseconds body_timeout{60'000};   // from there to the end of the body
  std::chrono::milliseconds idle_timeout{90'000};   // between two requests
  std::chrono::milliseconds write_timeout{60'000};  // a peer that takes nothing for so long is cut
  std::chrono::milliseconds handshake_timeout{10'000};
  /// Told on the loop's thread after each answer, those of the transport itself included. Must not throw.
  std::function<void(const Answered&)> on_answer = {};
  /// Told on the loop's thread how many connections there are, whenever that changes. Must not throw.
  std::function<void(size_t open)> on_connections = {};
};

struct ServerStats {
  size_t connections = 0;     // open ones
  size_t answering = 0;       // requests whose answer has not been taken whole
  uint64_t accepted = 0;      // connections
  uint64_t requests = 0;      // given to the handler
  uint64_t refused = 0;       // answered by the transport: malformed, too large, not authorized
  uint64_t unauthorized = 0;  // of these: without a right key, or made by a foreign page
  uint64_t timeouts = 0;      // of handshakes, heads, bodies and writes; idle connections are not counted
  uint64_t evicted = 0;       // idle connections that made room
  uint64_t accept_pauses = 0; // times when nothing could be accepted: no descriptors, or all connections busy
};

class Server {
public:
  /// Binds and starts the thread. Throws std::system_error naming address or file, std::invalid_argument for
  /// an address that is not loopback without keys. Paths in `open_paths` need no API key.
  Server(const ServerOptions& options, std::vector<std::string> open_paths, Handler handler);
  /// Ends all connections and the thread.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string endpoint() const; // "http://127.0.0.1:8080"
  /// Accepts no more connections; those that are open are closed after the answer they wait for.
  void drain();
  ServerStats stats() const;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace::http
