#pragma once

// One request on its way through the API: the exchange, and what is measured about it.

#include "gateway/http/api/api_error.hpp"
#include "gateway/http/exchange.hpp"
#include "gateway/metrics.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

namespace millrace::http {

/// Belongs to the loop's thread, but for post(). Lives until it is answered or its peer has gone.
class Call : public std::enable_shared_from_this<Call> {
public:
  /// `route` as the table of routes spells it; it must be a literal. `metrics` may be null.
  static std::shared_ptr<Call> make(std::shared_ptr<Exchange> exchange, std::string_view route,
                                    std::shared_ptr<Metrics> metrics);

  const Request& request() const { return exchange_->request(); }
  std::string take_body() { return exchange_->take_body(); }
  /// For the log.
  Origin origin() const { return {.door = "http", .request_id = request().id}; }
  /// nullptr if the request has no such header; the name in lower case.
  const std::string* header(const std::string& name) const;

  void respond(Response response);
  void respond(const ApiError& error) { respond(to_response(error)); }
  void begin(Response head);
  void write(std::string piece);
  void end();
  bool begun() const { return begun_; }
  /// Answered whole, or without anybody to answer.
  bool over() const { return over_; }

  size_t queued() const { return exchange_->queued(); }
  void on_drained(std::function<void()> call) { exchange_->on_drained(std::move(call)); }
  /// Called once when the peer goes before its answer is whole. Must not be set after that.
  void on_gone(std::function<void()> call) { on_gone_ = std::move(call); }
  void post(std::function<void()> call) { exchange_->post(std::move(call)); }
  void after(std::chrono::milliseconds delay, std::function<void()> call) { exchange_->after(delay, std::move(call)); }

private:
  Call(std::shared_ptr<Exchange> exchange, std::string_view route, std::shared_ptr<Metrics> metrics);
  void gone();
  void finish(int status);

  std::shared_ptr<Exchange> exchange_;
  std::string_view route_;
  std::shared_ptr<Metrics> metrics_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::function<void()> on_gone_;
  int status_ = 200;
  bool begun_ = false, written_ = false, over_ = false;
};

} // namespace millrace::http
