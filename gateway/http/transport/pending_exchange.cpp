#include "gateway/http/transport/pending_exchange.hpp"

#include "gateway/http/transport/refusal.hpp"
#include "gateway/http/transport/response_head.hpp"

#include <cassert>
#include <cstdio>

namespace millrace::http {
namespace {

constexpr size_t kKeptCapacity = 64u << 10; // of a queue that has run empty

constexpr Refusal kBroken{500, "internal_error", "The server failed to answer this request."};

void put_chunk(std::string& out, std::string_view piece) {
  char size[32];
  out.append(size, static_cast<size_t>(std::snprintf(size, sizeof size, "%zx\r\n", piece.size())));
  out.append(piece).append("\r\n");
}

} // namespace

PendingExchange::PendingExchange(std::shared_ptr<Loop> loop, Request request, const Framing& framing,
                                 const Options& options, std::function<void()> wake)
    : loop_(std::move(loop)), request_(std::move(request)), framing_(framing),
      max_queued_bytes_(options.max_queued_bytes), wake_(std::move(wake)), on_body_taken_(options.on_body_taken), keep_alive_(options.keep_alive) {}

void PendingExchange::put_head(const Response& head, std::optional<size_t> content_length) {
  status_ = head.status;
  chunked_ = !content_length && !framing_.http_1_0 && !has_no_body(head.status);
  if (!content_length && framing_.http_1_0)
    keep_alive_ = false; // the end of the connection is the end of the body
  out_ += response_head(head, request_, framing_, keep_alive_, content_length);
}

std::string PendingExchange::take_body() {
  std::string body = std::exchange(request_.body, {});
  if (state_ != State::gone && on_body_taken_)
    on_body_taken_();
  on_body_taken_ = nullptr;
  return body;
}

void PendingExchange::respond(Response response) {
  if (state_ == State::gone)
    return;
  assert(state_ == State::open && "one answer for each request");
  put_head(response, response.body.size());
  if (!framing_.head_only && !has_no_body(response.status))
    out_ += response.body;
  kept_ = std::move(response.kept);
  state_ = State::ended;
  wake();
}

void PendingExchange::begin(Response head) {
  if (state_ == State::gone)
    return;
  assert(state_ == State::open && "one answer for each request");
  put_head(head, std::nullopt);
  cut_short_ = framing_.head_only;
  state_ = cut_short_ ? State::ended : State::begun;
  wake();
}

void PendingExchange::write(std::string piece) {
  if (state_ != State::begun || piece.empty()) // an empty chunk would end the body
    return;
  if (queued() + piece.size() > max_queued_bytes_)
    failed_ = true;
  else if (chunked_)
    put_chunk(out_, piece);
  else
    out_ += piece;
  wake();
}

void PendingExchange::end() {
  if (state_ != State::begun)
    return;
  if (chunked_)
    out_ += "0\r\n\r\n";
  state_ = State::ended;
  wake();
}

void PendingExchange::on_drained(std::function<void()> call) {
  if (state_ != State::gone)
    on_drained_ = std::move(call);
}

void PendingExchange::on_close(std::function<void()> call) {
  if (state_ != State::gone)
    on_close_ = std::move(call);
}

void PendingExchange::post(std::function<void()> call) {
  loop_->post([self = shared_from_this(), call = std::move(call)] { self->guarded(call); });
}

void PendingExchange::after(std::chrono::milliseconds delay, std::function<void()> call) {
  if (state_ == State::gone)
    return;
  const auto timer = timers_.emplace(timers_.end(), loop_->context(), delay);
  timer->async_wait([self = shared_from_this(), timer, call = std::move(call)](const auto& cancelled) {
    if (cancelled || self->state_ == State::gone) // then the timer has left the list
      return;
    self->timers_.erase(timer);
    self->guarded(call);
  });
}

void PendingExchange::guarded(const std::function<void()>& call) {
  try {
    call();
  } catch (...) { // it was the handler's to report; here the client must not wait for ever
    if (state_ == State::open)
      respond(refuse(kBroken));
    else
      failed_ = true;
    wake();
  }
}

void PendingExchange::taken(size_t bytes) {
  bytes_taken_ += bytes;
  out_at_ += bytes;
  if (out_at_ < out_.size())
    return;
  out_at_ = 0;
  out_.clear();
  if (out_.capacity() > kKeptCapacity)
    out_.shrink_to_fit();
  if (on_drained_ && state_ == State::begun)
    guarded(std::function(on_drained_)); // a copy: it may set another
}

void PendingExchange::finish() {
  if (cut_short_)
    return close(); // for the handler the peer has gone: nobody takes what it would still make
  state_ = State::gone;
  drop_callbacks();
}

void PendingExchange::close() {
  if (state_ == State::gone)
    return;
  state_ = State::gone;
  if (const auto call = std::exchange(on_close_, nullptr))
    guarded(call);
  drop_callbacks();
}

void PendingExchange::drop_callbacks() {
  wake_ = nullptr;
  on_body_taken_ = nullptr;
  timers_.clear();
  kept_ = nullptr;
  // Moved away first: what dies with them may call back.
  const auto drained = std::exchange(on_drained_, nullptr), closed = std::exchange(on_close_, nullptr);
}

void PendingExchange::wake() {
  if (wake_)
    wake_();
}

} // namespace millrace::http
