#include "gateway/http/api/call.hpp"

#include <utility>

namespace millrace::http {

std::shared_ptr<Call> Call::make(std::shared_ptr<Exchange> exchange, std::string_view route,
                                 std::shared_ptr<Metrics> metrics) {
  std::shared_ptr<Call> call(new Call(std::move(exchange), route, std::move(metrics)));
  // Weakly: the exchange keeps its callbacks, and the call keeps the exchange.
  call->exchange_->on_close([weak = call->weak_from_this()] {
    if (const auto held = weak.lock())
      held->gone();
  });
  return call;
}

Call::Call(std::shared_ptr<Exchange> exchange, std::string_view route, std::shared_ptr<Metrics> metrics)
    : exchange_(std::move(exchange)), route_(route), metrics_(std::move(metrics)) {}

const std::string* Call::header(const std::string& name) const {
  const auto found = request().headers.find(name);
  return found == request().headers.end() ? nullptr : &found->second;
}

void Call::respond(Response response) {
  if (over_)
    return;
  const int status = response.status;
  exchange_->respond(std::move(response));
  finish(status);
}

void Call::begin(Response head) {
  if (over_)
    return;
  begun_ = true;
  status_ = head.status;
  exchange_->begin(std::move(head));
}

void Call::write(std::string piece) {
  if (over_ || piece.empty())
    return;
  if (!std::exchange(written_, true) && metrics_)
    metrics_->first_byte(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  exchange_->write(std::move(piece));
}

void Call::end() {
  if (over_)
    return;
  exchange_->end();
  finish(status_);
}

void Call::gone() {
  static constexpr int kClientClosedRequest = 499; // nginx's number for it
  if (over_)
    return;
  const auto call = std::exchange(on_gone_, nullptr);
  finish(kClientClosedRequest);
  if (call)
    call();
}

void Call::finish(int status) {
  over_ = true;
  on_gone_ = nullptr;
  if (metrics_)
    metrics_->http(route_, status, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
}

} // namespace millrace::http
