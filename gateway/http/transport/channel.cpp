#include "gateway/http/transport/channel.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <linux/sockios.h>
#include <new>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace millrace::http {
namespace {

using Outcome = Channel::Outcome;

int clamped(size_t n) {
  return static_cast<int>(std::min<size_t>(n, INT_MAX));
}

/// Of recv and send.
Channel::Result result_of(ssize_t n, Outcome if_blocked) {
  if (n > 0)
    return {Outcome::done, static_cast<size_t>(n)};
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    return {if_blocked};
  return {Outcome::closed};
}

} // namespace

Channel::Channel(int descriptor, SSL_CTX* tls) : descriptor_(descriptor), tls_(nullptr, SSL_free) {
  if (!tls)
    return;
  ready_ = false;
  tls_.reset(SSL_new(tls));
  if (!tls_ || SSL_set_fd(tls_.get(), descriptor) != 1)
    throw std::bad_alloc();
  SSL_set_accept_state(tls_.get());
}

Outcome Channel::handshake() {
  if (ready_)
    return Outcome::done;
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_.get());
  ready_ = result == 1;
  return ready_ ? Outcome::done : outcome_of(result);
}

Channel::Result Channel::read(std::span<char> bytes) {
  if (!tls_) {
    ssize_t n;
    do
      n = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    while (n < 0 && errno == EINTR);
    return result_of(n, Outcome::wants_read);
  }
  ERR_clear_error();
  const int n = SSL_read(tls_.get(), bytes.data(), clamped(bytes.size()));
  if (n > 0)
    return {Outcome::done, static_cast<size_t>(n)};
  return {outcome_of(n)};
}

Channel::Result Channel::write(std::string_view bytes) {
  if (!tls_) {
    ssize_t n;
    do
      n = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return result_of(n, Outcome::wants_write);
  }
  ERR_clear_error();
  const int n = SSL_write(tls_.get(), bytes.data(), clamped(bytes.size()));
  if (n > 0)
    return {Outcome::done, static_cast<size_t>(n)};
  return {outcome_of(n)};
}

void Channel::shut_down_writing() {
  if (tls_ && ready_) {
    ERR_clear_error();
    SSL_shutdown(tls_.get()); // close_notify, if the socket takes it now
  }
  ::shutdown(descriptor_, SHUT_WR);
}

bool Channel::peer_hung_up() const {
  pollfd fd{descriptor_, POLLRDHUP, 0};
  return ::poll(&fd, 1, 0) > 0;
}

int Channel::in_flight() const {
  int bytes = 0;
  ::ioctl(descriptor_, SIOCOUTQ, &bytes);
  return bytes;
}

Outcome Channel::outcome_of(int result) {
  switch (SSL_get_error(tls_.get(), result)) {
  case SSL_ERROR_WANT_READ: return Outcome::wants_read;
  case SSL_ERROR_WANT_WRITE: return Outcome::wants_write;
  case SSL_ERROR_SSL:
  case SSL_ERROR_SYSCALL: ready_ = false; return Outcome::closed; // no SSL_shutdown after these
  default: return Outcome::closed;
  }
}

} // namespace millrace::http
