#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <map>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace millrace::http::test {

/// An answer as it came.
struct Answered {
  int status = 0;                             // 0: none came
  std::map<std::string, std::string> headers; // names in lower case
  std::string body;                           // chunks joined
  bool whole = false;                         // the end of the body was seen as the head had told it
};

/// A client on a raw socket: it sends what a test wants, right or wrong. Reading gives up after ten seconds,
/// so that a test fails rather than hangs.
class Peer {
public:
  /// Of "http://127.0.0.1:8080". A small receive buffer makes a slow reader felt.
  explicit Peer(const std::string& endpoint, int receive_bytes = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    const timeval patience{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Peer() { close(); }
  Peer(Peer&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), buffer_(std::move(other.buffer_)) {}
  Peer& operator=(Peer&&) = delete;

  bool connected() const { return connected_; }
  int descriptor() const { return fd_; }

  Peer& send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0)
        break; // the server may have closed: its answer tells the test
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return *this;
  }
  /// A whole request with the headers that each needs.
  Peer& request(std::string_view method, std::string_view target, std::string_view body = "",
                std::string_view headers = "") {
    std::string text;
    text.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n").append(headers);
    if (!body.empty())
      text.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
    return send(text.append("\r\n").append(body));
  }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0)
      ::close(fd_);
    fd_ = -1;
  }
  /// Ends the connection with a reset.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  /// More bytes into the buffer; false at the end.
  bool receive() {
    char bytes[16 << 10];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      ADD_FAILURE() << "nothing came for ten seconds";
    if (n <= 0)
      return false;
    buffer_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  /// True if the server has closed the connection, without a byte more.
  bool at_end() { return buffer_.empty() && !receive(); }
  /// Until that text has come, which is then taken with all before it. False if the end came first.
  bool receive_until(std::string_view text) {
    size_t at;
    while ((at = buffer_.find(text)) == buffer_.npos)
      if (!receive())
        return false;
    buffer_.erase(0, at + text.size());
    return true;
  }
  std::string rest() {
    while (receive()) {
    }
    return std::exchange(buffer_, {});
  }

  /// The next answer. `bodiless`: of a HEAD.
  Answered answer(bool bodiless = false) {
    Answered result;
    if (!receive_head(result))
      return result;
    const auto length = result.headers.find("content-length");
    if (bodiless) {
      result.whole = true;
    } else if (result.headers.contains("transfer-encoding")) {
      result.whole = receive_chunks(result.body);
    } else if (length != result.headers.end()) {
      const size_t wanted = std::stoul(length->second);
      while (buffer_.size() < wanted && receive()) {
      }
      result.whole = buffer_.size() >= wanted;
      result.body = take(std::min(wanted, buffer_.size()));
    } else {
      result.body = rest();
      result.whole = true;
    }
    return result;
  }
  /// The head alone.
  bool receive_head(Answered& result) {
    const auto head = line_block();
    if (head.empty())
      return false;
    result.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return char(std::tolower(c)); });
      result.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return true;
  }
  /// One chunk; empty at the end of the body, or of the connection.
  std::string receive_chunk() {
    std::string piece;
    whole_ = read_chunk(piece);
    return piece;
  }

private:
  std::string take(size_t n) {
    std::string text = buffer_.substr(0, n);
    buffer_.erase(0, n);
    return text;
  }
  /// Head up to its empty line, without it.
  std::string line_block() {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == buffer_.npos)
      if (!receive())
        return {};
    std::string text = take(end + 4);
    text.resize(end + 2);
    return text;
  }
  bool read_chunk(std::string& piece) {
    size_t eol;
    while ((eol = buffer_.find("\r\n")) == buffer_.npos)
      if (!receive())
        return false;
    const size_t size = std::stoul(take(eol + 2), nullptr, 16);
    while (buffer_.size() < size + 2)
      if (!receive())
        return false;
    piece = take(size);
    take(2);
    return true;
  }
  bool receive_chunks(std::string& body) {
    for (std::string piece; read_chunk(piece);) {
      if (piece.empty())
        return true;
      body += piece;
    }
    return false;
  }

  int fd_;
  bool connected_ = false;
  bool whole_ = false;
  std::string buffer_;
};

} // namespace millrace::http::test
