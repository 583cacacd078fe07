#pragma once

// The transport: listens, speaks HTTP/1.1 and TLS, bounds what a peer may cost, knows keys. One thread, one event loop.

#include "gateway/http/exchange.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace millrace::http {

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;                    // 0 picks a free one
  bool allow_remote = false;               // an address that is not loopback; needs API keys and TLS then
  std::filesystem::path certificate = {};  // PEM chain; with key: TLS
  std::filesystem::path private_key = {};
  std::filesystem::path api_keys = {};     // a file with one "name key" or "key" a line, # for comments; must be readable by its owner alone
  size_t max_connections = 12'000;
  size_t max_header_bytes = 16u << 10;
  size_t max_body_bytes = 8u << 20;
  size_t max_queued_bytes = 1u << 20;                // of one answer, at the peer's pace
  std::chrono::milliseconds header_timeout{15'000};  // from a request's first byte to the end of its head
  std::chrono::milliseconds body_timeout{60'000};    // from there to the end of the body
  std::chrono::milliseconds idle_timeout{90'000};    // between two requests
  std::chrono::milliseconds write_timeout{60'000};   // a peer that takes nothing for so long is cut
  std::chrono::milliseconds handshake_timeout{10'000};
};

struct ServerStats {
  size_t connections = 0;
  uint64_t accepted = 0, requests = 0, refused = 0, timeouts = 0, unauthorized = 0;
};

class Server {
public:
  /// Binds and starts the thread. Throws std::system_error naming address or file, std::invalid_argument for an address that is
  /// not loopback without keys. Paths in `open_paths` need no API key.
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
