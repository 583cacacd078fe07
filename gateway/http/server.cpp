#include "gateway/http/server.hpp"

#include "gateway/http/transport/connection.hpp"
#include "gateway/http/transport/tls_context.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <csignal>
#include <stdexcept>
#include <sys/resource.h>
#include <thread>

namespace millrace::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kSpareDescriptors =
    128; // of the process, for all that is not HTTP: some of it can't bear to have none
constexpr std::chrono::seconds kAcceptRetry{1};

asio::ip::address parse_address(const std::string& text) {
  error_code error;
  const auto address = asio::ip::make_address(text == "localhost" ? "127.0.0.1" : text, error);
  if (error)
    throw std::invalid_argument("HTTP address: \"" + text + "\" is not an IP address");
  return address;
}

/// Whoever can reach more than this machine's loopback must prove who they are, on a line that nobody else
/// reads.
void check_exposure(const ServerOptions& options, const asio::ip::address& address) {
  if (options.certificate.empty() != options.private_key.empty())
    throw std::invalid_argument("TLS needs both a certificate and its private key");
  if (address.is_loopback())
    return;
  const std::string what = "HTTP address " + options.address + " is not loopback";
  if (!options.allow_remote)
    throw std::invalid_argument(what + ", and remote clients are not allowed");
  if (options.api_keys.empty())
    throw std::invalid_argument(what + ": remote clients need API keys");
  if (options.certificate.empty())
    throw std::invalid_argument(what + ": remote clients need TLS");
}

size_t connection_limit(size_t wanted) {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY)
    return wanted;
  const size_t available = descriptors.rlim_cur;
  return std::min(wanted, available > 2 * kSpareDescriptors ? available - kSpareDescriptors : available / 2);
}

/// Errors of accept() that last: retrying at once would only burn the processor.
bool lacks_resources(const error_code& error) {
  return error == asio::error::no_descriptors || error.value() == ENFILE ||
         error == asio::error::no_buffer_space || error == asio::error::no_memory;
}

} // namespace

struct Server::State {
  State(const ServerOptions& options, std::vector<std::string> open_paths, Handler handler)
      : service{options, make_guard(options, std::move(open_paths)), std::move(handler),
                std::make_shared<Loop>()},
        acceptor(service.loop->context()), room(service.loop->context()),
        work(service.loop->context().get_executor()),
        max_connections(connection_limit(options.max_connections)) {
    const auto address = parse_address(options.address);
    check_exposure(options, address);
    if (!options.certificate.empty())
      service.tls = make_tls_context(options.certificate, options.private_key);
    service.on_connection_end = [this] { room.cancel(); };
    listen(address);
  }

  static Guard make_guard(const ServerOptions& options, std::vector<std::string> open_paths) {
    return Guard(options.api_keys.empty() ? std::nullopt : std::optional(ApiKeys::load(options.api_keys)),
                 std::move(open_paths));
  }

  void listen(const asio::ip::address& address) {
    const tcp::endpoint wanted(address, service.options.port);
    try {
      acceptor.open(wanted.protocol());
      acceptor.set_option(tcp::acceptor::reuse_address(true));
      acceptor.bind(wanted);
      acceptor.listen(4096); // the kernel's own bound is often lower
    } catch (const boost::system::system_error& e) {
      throw std::system_error(e.code().value(), std::generic_category(), name_of(wanted));
    }
    endpoint = name_of(acceptor.local_endpoint());
  }

  std::string name_of(const tcp::endpoint& at) const {
    const std::string host = at.address().to_string();
    return (service.tls ? "https://" : "http://") + (at.address().is_v6() ? "[" + host + "]" : host) + ":" +
           std::to_string(at.port());
  }

  void run() {
    // Of this thread alone: OpenSSL writes to sockets of peers that have gone.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    for (;;) {
      try {
        service.loop->context().run();
        return;
      } catch (const std::bad_alloc&) { // one peer's loss
      }
    }
  }

  asio::awaitable<void> accept() {
    while (!service.draining && !service.stopping) {
      error_code error;
      if (service.connections.size() >= max_connections) {
        // Who idles may stay until another one comes.
        co_await acceptor.async_wait(tcp::acceptor::wait_read,
                                     asio::redirect_error(asio::use_awaitable, error));
        if (!error && service.connections.size() >= max_connections)
          co_await make_room();
        continue;
      }
      tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (lacks_resources(error)) {
        co_await make_room();
      } else if (!error) {
        ++service.counters.accepted;
        start(std::move(socket));
      } // else the peer has gone already, or the acceptor is closed
    }
  }

  void start(tcp::socket socket) {
    try {
      socket.native_non_blocking(true);
      Connection::start(service, std::move(socket));
    } catch (const std::exception&) { // this connection's loss; others are accepted as before
    }
  }

  /// Cuts the connection that idles longest, or waits for one to end. Descriptors may also come from
  /// elsewhere.
  asio::awaitable<void> make_room() {
    if (!service.idle.empty()) {
      service.idle.front()->cut();
      ++service.counters.evicted;
    } else {
      ++service.counters.accept_pauses;
    }
    room.expires_after(kAcceptRetry);
    error_code woken;
    co_await room.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }

  void stop_accepting() {
    error_code ignored;
    acceptor.close(ignored);
    room.cancel();
    for (Connection* connection : service.connections)
      connection->wake();
  }

  Service service;
  tcp::acceptor acceptor;
  asio::steady_timer room; // cancelled when a connection has ended
  asio::executor_work_guard<asio::io_context::executor_type> work;
  size_t max_connections;
  std::string endpoint;
  std::thread thread;
};

Server::Server(const ServerOptions& options, std::vector<std::string> open_paths, Handler handler)
    : state_(std::make_unique<State>(options, std::move(open_paths), std::move(handler))) {
  State& s = *state_;
  asio::co_spawn(s.service.loop->context(), s.accept(), asio::detached);
  s.thread = std::thread([&s] { s.run(); });
}

Server::~Server() {
  State& s = *state_;
  s.service.loop->post([&s] {
    s.service.stopping = true;
    s.stop_accepting();
    s.work.reset(); // the loop ends with the last connection
  });
  s.service.loop->close();
  s.thread.join();
}

std::string Server::endpoint() const {
  return state_->endpoint;
}

void Server::drain() {
  state_->service.loop->post([&s = *state_] {
    s.service.draining = true;
    s.stop_accepting();
  });
}

ServerStats Server::stats() const {
  const auto& counters = state_->service.counters;
  return {counters.connections, counters.answering, counters.accepted,
          counters.requests,    counters.refused,   counters.unauthorized,
          counters.timeouts,    counters.evicted,   counters.accept_pauses};
}

} // namespace millrace::http
