#include "gateway/zeromq/socket.hpp"

#include "gateway/zeromq/zap.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <tuple>

namespace millrace {
namespace {

constexpr int kLingerMs = 200;
constexpr int kHandshakeMs = 3'000;
constexpr int kKeepaliveIdleS = 30; // a host that is silent for so long is asked
constexpr int kKeepaliveIntervalS = 10;
constexpr int kKeepaliveProbes = 3; // and after so many questions without an answer it is gone
constexpr int kUnacknowledgedMs = 60'000;
constexpr int kBacklog = 128;

[[noreturn]] void refuse(std::errc code, const std::string& endpoint, const std::string& why) {
  throw std::system_error(std::make_error_code(code), "cannot listen on \"" + endpoint + "\": " + why);
}

bool is_port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return text == "*" || (error == std::errc{} && end == text.data() + text.size());
}

bool is_loopback(const std::string& host) {
  in_addr address;
  return host == "[::1]" ||
         (inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

void check_tcp(const std::string& endpoint, std::string_view address, const SocketAccess& access) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || !is_port(address.substr(colon + 1)))
    refuse(std::errc::invalid_argument, endpoint, "expected tcp://HOST:PORT");
  const std::string host(address.substr(0, colon));
  if (is_loopback(host))
    return;
  if (!access.allow_remote)
    refuse(std::errc::permission_denied, endpoint,
           "only loopback addresses (127.0.0.1, [::1]) and ipc:// are served unless others are allowed to "
           "connect");
  if (access.secret_key.empty())
    refuse(std::errc::permission_denied, endpoint, "other machines are served with CURVE keys only");
  if (host.empty() || host.find_first_of(";/") != std::string::npos)
    refuse(std::errc::invalid_argument, endpoint, "expected tcp://HOST:PORT");
}

/// A bound ipc socket replaces whatever has its name, so what is there is looked at first.
void check_ipc_path_is_free(const std::string& endpoint, const std::string& path) {
  struct stat status;
  if (path == "*" || path.front() == '@' || lstat(path.c_str(), &status) != 0)
    return;
  if (!S_ISSOCK(status.st_mode))
    refuse(std::errc::file_exists, endpoint, "the path is not a socket");

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return; // bind will say that it is too long
  std::copy(path.begin(), path.end(), address.sun_path);
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int result = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const bool answers = result == 0 || errno == EAGAIN; // EAGAIN: its backlog is full
  close(probe);
  if (answers)
    refuse(std::errc::address_in_use, endpoint, "another server answers there");
}

/// libzmq asks ZAP only about sockets with a domain, and lets everybody in if nobody answers there; unless
/// told to insist.
void ask_for_keys(zmq::socket_t& socket, const std::string& secret_key) {
  constexpr int kZapEnforceDomain =
      93; // ZMQ_ZAP_ENFORCE_DOMAIN, which zmq.h names for users of its drafts only
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, secret_key);
  socket.set(zmq::sockopt::zap_domain, std::string(kZapDomain));
  const int on = 1;
  if (zmq_setsockopt(socket.handle(), kZapEnforceDomain, &on, sizeof on) != 0)
    throw std::runtime_error("this libzmq can't insist on the keys of clients (ZMQ_ZAP_ENFORCE_DOMAIN)");
}

} // namespace

zmq::context_t make_context() {
  const auto version = zmq::version();
  if (version < std::make_tuple(4, 3, 4))
    throw std::runtime_error("libzmq 4.3.4 or later is needed");
  zmq::context_t context(1);
  context.set(zmq::ctxopt::blocky, 0);
  return context;
}

void check_endpoint(const std::string& endpoint, const SocketAccess& access) {
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kIpc = "ipc://";
  if (endpoint.starts_with(kTcp))
    check_tcp(endpoint, std::string_view(endpoint).substr(kTcp.size()), access);
  else if (!endpoint.starts_with(kIpc) || endpoint.size() == kIpc.size())
    refuse(std::errc::invalid_argument, endpoint, "expected tcp://HOST:PORT or ipc://PATH");
  else
    check_ipc_path_is_free(endpoint, endpoint.substr(kIpc.size()));
}

zmq::socket_t bind_socket(zmq::context_t& context, zmq::socket_type type, const std::string& endpoint,
                          const SocketLimits& limits, const SocketAccess& access) {
  check_endpoint(endpoint, access);
  zmq::socket_t socket(context, type);
  socket.set(zmq::sockopt::linger, kLingerMs);
  socket.set(zmq::sockopt::ipv6, endpoint.starts_with("tcp://["));
  socket.set(zmq::sockopt::backlog, kBacklog);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  // Not ZMTP's heartbeats: their timer writes to a connection that was lost while its input waited for room
  // in our queue, and libzmq 4.3 then ends the process (an assertion, !_io_error).
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, kKeepaliveIdleS);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, kKeepaliveIntervalS);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, kKeepaliveProbes);
  socket.set(zmq::sockopt::tcp_maxrt, kUnacknowledgedMs);
  socket.set(zmq::sockopt::maxmsgsize, limits.max_frame_bytes);
  socket.set(zmq::sockopt::rcvhwm, limits.receive_queue);
  socket.set(zmq::sockopt::sndhwm, limits.send_queue);
  if (type == zmq::socket_type::router)
    socket.set(zmq::sockopt::router_mandatory, true); // an answer to nobody is an error, not a silence
  if (type == zmq::socket_type::xpub) {
    socket.set(zmq::sockopt::xpub_verboser, true); // equal topics of two subscribers are both told
    socket.set(zmq::sockopt::xpub_manual, true);
    socket.set(zmq::sockopt::xpub_nodrop, true); // one without room is told by EAGAIN; see Publisher
  }
  if (!access.secret_key.empty())
    ask_for_keys(socket, access.secret_key);
  try {
    socket.bind(endpoint);
  } catch (const zmq::error_t& error) {
    throw std::system_error(error.num(), std::generic_category(), "cannot listen on \"" + endpoint + "\"");
  }
  return socket;
}

Principal sender_of(const zmq::message_t& frame, bool authenticated) {
  if (!authenticated)
    return {};
  const char* const key = zmq_msg_gets(frame.handle(), "User-Id");
  return {key ? "curve:" + std::string(key) : "curve:"};
}

std::string bound_endpoint(const zmq::socket_t& socket) {
  return socket.get(zmq::sockopt::last_endpoint);
}

} // namespace millrace
