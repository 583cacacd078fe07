#pragma once

// Bytes of one connection into its requests, one after the other. No sockets; all of Beast is in the source.

#include "gateway/http/exchange.hpp"
#include "gateway/http/transport/refusal.hpp"

#include <memory>
#include <optional>

namespace millrace::http {

struct ReaderLimits {
  size_t max_header_bytes = 16u << 10;
  size_t max_body_bytes = 8u << 20;
};

/// What a request asks of its connection.
struct Framing {
  bool http_1_0 = false; // no chunks in the answer
  bool keep_alive = true;
  bool head_only = false;        // HEAD: the answer has no body
  bool expects_continue = false; // waits for "100 Continue" before it sends the body
};

class RequestReader {
public:
  explicit RequestReader(const ReaderLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  /// Bytes as they came; they are looked at by advance().
  void append(std::string_view bytes);

  enum class Progress {
    need_more, // all complete pieces have been taken
    head,      // once for each request, before its body: request() lacks it
    complete,  // request() is whole; next() begins the next one
    refused,   // see refusal(): nothing after it can be understood
  };
  Progress advance();

  /// Whole from `head` on, until next(); before, what is known so far.
  Request& request();
  const Framing& framing() const;
  const Refusal& refusal() const;
  /// Bytes of the body so far.
  size_t body_bytes() const;

  /// Bytes that wait here: of a piece that is not complete, or of later requests.
  size_t buffered() const;
  void next();

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace::http
