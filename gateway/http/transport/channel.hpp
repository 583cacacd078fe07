#pragma once

// Bytes to and from one peer, plain or by TLS. Nothing here waits: what can't be done now says what it waits
// for.

#include <memory>
#include <span>
#include <string_view>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

namespace millrace::http {

class Channel {
public:
  enum class Outcome {
    done,
    wants_read,  // again when the socket can be read from
    wants_write, // again when it can be written to
    closed,      // the peer has gone, or broke the rules of TLS
  };
  struct Result {
    Outcome outcome;
    size_t bytes = 0; // with `done`; more than 0
  };

  /// A connected, non-blocking socket, which must live longer. With a context: TLS; shake hands first.
  /// The thread must block SIGPIPE when it is TLS: OpenSSL writes with write(2).
  Channel(int descriptor, SSL_CTX* tls);

  Outcome handshake();
  Result read(std::span<char> bytes);
  Result write(std::string_view bytes);
  /// Tells the peer that no more will come. What it still sends can be read.
  void shut_down_writing();
  /// Whether the peer has said that it sends no more, or is gone, behind whatever it has sent before.
  bool peer_hung_up() const;
  /// Bytes in the kernel that the peer has not acknowledged.
  int in_flight() const;

private:
  Outcome outcome_of(int result);

  int descriptor_;
  std::unique_ptr<SSL, void (*)(SSL*)> tls_;
  bool ready_ = true; // TLS: hands are shaken
};

} // namespace millrace::http
