#pragma once

// The exchange that a connection gives to the handler: bytes wait here until the socket takes them.

#include "gateway/http/exchange.hpp"
#include "gateway/http/transport/loop.hpp"
#include "gateway/http/transport/request_reader.hpp"

#include <boost/asio/steady_timer.hpp>

#include <list>

namespace millrace::http {

class PendingExchange final : public Exchange, public std::enable_shared_from_this<PendingExchange> {
public:
  struct Options {
    size_t max_queued_bytes;
    bool keep_alive; // what the answer's head promises, if its body's end can be told
    std::function<void()> on_body_taken = {};
  };

  /// `wake` is called, on the loop's thread, when there is something to look at here.
  PendingExchange(std::shared_ptr<Loop> loop, Request request, const Framing& framing, const Options& options,
                  std::function<void()> wake);

  // ---- the handler's side ----

  const Request& request() const override { return request_; }
  std::string take_body() override;
  void respond(Response response) override;
  void begin(Response head) override;
  void write(std::string piece) override;
  void end() override;
  size_t queued() const override { return out_.size() - out_at_; }
  void on_drained(std::function<void()> call) override;
  void on_close(std::function<void()> call) override;
  void post(std::function<void()> call) override;
  void after(std::chrono::milliseconds delay, std::function<void()> call) override;

  // ---- the connection's side ----

  /// Runs the handler; what it throws becomes a 500, or the end of the connection once the answer has begun.
  /// So do the exceptions of callbacks.
  void guarded(const std::function<void()>& call);

  /// Bytes for the socket, and how many of them it took. The latter may call on_drained.
  std::string_view pending() const { return std::string_view(out_).substr(out_at_); }
  void taken(size_t bytes);

  /// All of the answer is in pending().
  bool produced() const { return state_ == State::ended; }
  /// The handler broke it: overran the queue, or threw.
  bool failed() const { return failed_; }
  /// The connection can carry another answer after this one.
  bool keep_alive() const { return keep_alive_; }
  int status() const { return status_; } // 0: there is no answer yet
  uint64_t bytes_taken() const { return bytes_taken_; }

  /// The socket took all. Drops all callbacks.
  void finish();
  /// The peer has gone: calls on_close and drops all callbacks. Does nothing after finish().
  void close();

private:
  enum class State { open, begun, ended, gone };

  void put_head(const Response& head, std::optional<size_t> content_length);
  void drop_callbacks();
  void wake();

  const std::shared_ptr<Loop> loop_;
  Request request_;
  const Framing framing_;
  const size_t max_queued_bytes_;
  std::function<void()> wake_, on_body_taken_;

  State state_ = State::open;
  bool keep_alive_;
  bool chunked_ = false;
  bool failed_ = false;
  bool cut_short_ = false; // HEAD was answered by begin(): the rest is not wanted
  int status_ = 0;
  uint64_t bytes_taken_ = 0;
  std::string out_;
  size_t out_at_ = 0; // before it, the socket has taken out_
  std::function<void()> on_drained_, on_close_;
  std::list<boost::asio::steady_timer> timers_;
  std::shared_ptr<const void> kept_; // of the response
};

} // namespace millrace::http
