#pragma once

// One peer: its requests in their order, each answered before the next is read.

#include "gateway/http/server.hpp"
#include "gateway/http/transport/channel.hpp"
#include "gateway/http/transport/guard.hpp"
#include "gateway/http/transport/pending_exchange.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <list>
#include <unordered_set>

namespace millrace::http {

class Connection;

/// What the connections of a server share. Of the loop's thread, but for the counters.
struct Service {
  ServerOptions options;
  Guard guard;
  Handler handler;
  std::shared_ptr<Loop> loop;
  std::shared_ptr<SSL_CTX> tls = {};

  std::unordered_set<Connection*> connections = {};
  std::list<Connection*> idle = {}; // the longest idle first
  std::function<void()> on_connection_end = {};
  std::vector<char> scratch =
      std::vector<char>(64u << 10); // bytes that were just read: none is kept over a suspension
  size_t body_bytes = 0;            // of requests that are read or answered
  bool draining = false;
  bool stopping = false;

  struct Counters {
    std::atomic<size_t> connections = 0, answering = 0;
    std::atomic<uint64_t> accepted = 0, requests = 0, refused = 0, unauthorized = 0, timeouts = 0,
                          evicted = 0, accept_pauses = 0;
  } counters = {};
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
  /// Takes the accepted, non-blocking socket and lives until its peer or the service ends it.
  static void start(Service& service, boost::asio::ip::tcp::socket socket);
  Connection(Service& service, boost::asio::ip::tcp::socket socket);
  ~Connection();

  /// Looks anew at what it waits for: an answer, the service's state.
  void wake();
  /// Ends it, whatever it does.
  void cut();

private:
  using Clock = std::chrono::steady_clock;
  using Deadline = Clock::time_point;
  template <class T> using Task = boost::asio::awaitable<T>;

  enum class After { next_request, linger, close };
  enum class Heard { head, complete, refused, too_much, timed_out, closed };
  enum class Watched { quiet, gone };

  static Task<void> run(std::shared_ptr<Connection> self);
  Task<bool> shake_hands();
  Task<bool> await_request();
  Task<After> serve_request();
  Task<Heard> hear(Deadline deadline);
  Task<After> answer_request();
  Task<After> refuse_request(Refusal refusal, bool keep_alive);
  Task<bool> write_answer(PendingExchange& answer);
  Task<bool> send(std::string_view bytes);
  Task<void> linger();

  Watched watch_peer();
  void leave_idle();
  void count_connections();
  void charge_body();
  void adopt_request_id();
  void report(const Request& request, int status, uint64_t bytes, bool whole);

  /// Until the deadline, a wake-up, or what was armed.
  Task<void> wait(Deadline deadline);
  Task<void> yield();
  void arm(Channel::Outcome wanted);
  bool ending() const { return cut_ || service_.stopping; }

  Service& service_;
  boost::asio::ip::tcp::socket socket_;
  Channel channel_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<RequestReader> reader_; // absent while it idles
  std::optional<std::list<Connection*>::iterator> idle_;
  size_t charged_bytes_ = 0;
  Deadline begun_;
  bool woken_ = false;
  bool cut_ = false;
  bool read_armed_ = false,
       write_armed_ = false; // armed: the socket is known to block, and its readiness wakes us
};

} // namespace millrace::http
