#include "gateway/http/transport/connection.hpp"

#include "gateway/http/transport/response_head.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/rand.h>

namespace millrace::http {
namespace {

namespace asio = boost::asio;
using Outcome = Channel::Outcome;
using Progress = RequestReader::Progress;

constexpr Refusal kTimeout{408, "timeout", "The request did not come within the time it has."};
constexpr Refusal kBusy{503, "busy", "The server holds as many large requests as it can; try again later."};

constexpr size_t kWriteTurn = 256u << 10; // bytes that one connection writes before others get their turn
constexpr int kReadTurn = 16;             // likewise, reads
constexpr size_t kReadAhead = 64u << 10;  // later requests that are taken while one is answered
constexpr std::chrono::seconds kHangUpCheck{1}; // beyond it
constexpr std::chrono::seconds kLinger{2};
constexpr size_t kLingerBytes = 16u << 20;
constexpr int kUnsentBytes =
    128 << 10; // in the kernel: what waits for a slow peer should wait in the stream's log

std::string random_id() {
  unsigned char bytes[16];
  RAND_bytes(bytes, sizeof bytes);
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

bool is_sane_id(std::string_view id) {
  const auto sane = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), sane);
}

/// Counts an answer while it is made and sent. It must not call a connection that ended by an exception.
class Answering {
public:
  Answering(PendingExchange& answer, std::atomic<size_t>& count) : answer_(answer), count_(count) {
    ++count_;
  }
  ~Answering() {
    answer_.close();
    --count_;
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

private:
  PendingExchange& answer_;
  std::atomic<size_t>& count_;
};

} // namespace

void Connection::start(Service& service, asio::ip::tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(service, std::move(socket));
  asio::co_spawn(service.loop->context(), run(connection), asio::detached);
}

Connection::Connection(Service& service, asio::ip::tcp::socket socket)
    : service_(service), socket_(std::move(socket)), channel_(socket_.native_handle(), service.tls.get()),
      timer_(service.loop->context()) {
  const int on = 1; // tokens are small and must not wait for each other
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
  service_.connections.insert(this);
  count_connections();
}

Connection::~Connection() {
  leave_idle();
  service_.body_bytes -= charged_bytes_;
  service_.connections.erase(this);
  count_connections();
  if (service_.on_connection_end)
    service_.on_connection_end();
}

void Connection::wake() {
  woken_ = true;
  timer_.cancel();
}

void Connection::cut() {
  leave_idle();
  cut_ = true;
  wake();
}

void Connection::leave_idle() {
  if (idle_)
    service_.idle.erase(*idle_);
  idle_.reset();
}

// ---- a connection's life ----

auto Connection::run(std::shared_ptr<Connection> self) -> Task<void> {
  try {
    After next = After::close;
    if (co_await self->shake_hands()) {
      do
        next = co_await self->serve_request();
      while (next == After::next_request);
      if (next == After::linger)
        co_await self->linger();
    }
  } catch (const std::exception&) { // this peer's loss; the others go on
  }
  boost::system::error_code ignored;
  self->socket_.close(ignored); // drops what is armed, which holds on to the connection
}

auto Connection::shake_hands() -> Task<bool> {
  const auto deadline = Clock::now() + service_.options.handshake_timeout;
  for (;;) {
    const auto outcome = channel_.handshake();
    if (outcome == Outcome::done)
      co_return true;
    if (outcome == Outcome::closed || ending() || service_.draining)
      co_return false;
    if (Clock::now() >= deadline) {
      ++service_.counters.timeouts;
      co_return false;
    }
    arm(outcome);
    co_await wait(deadline);
  }
}

auto Connection::serve_request() -> Task<After> {
  co_await yield(); // a peer that sends many requests at once takes turns with the others
  if (!co_await await_request())
    co_return After::close;
  begun_ = Clock::now();

  auto heard = co_await hear(begun_ + service_.options.header_timeout);
  if (heard == Heard::head) {
    adopt_request_id();
    auto verdict = service_.guard.admit(reader_->request());
    if (const auto* refusal = std::get_if<Refusal>(&verdict)) {
      ++service_.counters.unauthorized;
      co_return co_await refuse_request(*refusal, reader_->advance() == Progress::complete);
    }
    reader_->request().principal = std::move(std::get<Principal>(verdict));
    if (reader_->framing().expects_continue && reader_->buffered() == 0)
      if (!co_await send("HTTP/1.1 100 Continue\r\n\r\n"))
        co_return After::close;
    heard = co_await hear(Clock::now() + service_.options.body_timeout);
  }
  switch (heard) {
  case Heard::complete: co_return co_await answer_request();
  case Heard::too_much: co_return co_await refuse_request(kBusy, false);
  case Heard::refused: co_return co_await refuse_request(reader_->refusal(), false);
  case Heard::timed_out: ++service_.counters.timeouts; co_return co_await refuse_request(kTimeout, false);
  default: co_return After::close;
  }
}

/// Waits for the first byte of a request, holding nothing meanwhile. False if there will be none.
auto Connection::await_request() -> Task<bool> {
  if (reader_ && reader_->buffered() > 0)
    co_return true;
  reader_.reset();
  const auto deadline = Clock::now() + service_.options.idle_timeout;
  for (;;) {
    const auto result = read_armed_ ? Channel::Result{Outcome::wants_read} : channel_.read(service_.scratch);
    if (result.outcome == Outcome::done) {
      reader_ = std::make_unique<RequestReader>(
          ReaderLimits{service_.options.max_header_bytes, service_.options.max_body_bytes});
      reader_->append({service_.scratch.data(), result.bytes});
      co_return true;
    }
    if (result.outcome == Outcome::closed || ending() || service_.draining || Clock::now() >= deadline)
      co_return false;
    arm(result.outcome);
    idle_ = service_.idle.insert(service_.idle.end(), this);
    co_await wait(deadline);
    leave_idle();
  }
}

/// Reads until the reader has more to tell than "more".
auto Connection::hear(Deadline deadline) -> Task<Heard> {
  for (int reads = 1;; ++reads) {
    const Progress progress = reader_->advance();
    charge_body();
    if (charged_bytes_ > 0 && service_.body_bytes > service_.options.max_total_body_bytes)
      co_return Heard::too_much;
    switch (progress) {
    case Progress::head: co_return Heard::head;
    case Progress::complete: co_return Heard::complete;
    case Progress::refused: co_return Heard::refused;
    case Progress::need_more: break;
    }
    if (Clock::now() >= deadline)
      co_return Heard::timed_out;
    const auto result = read_armed_ ? Channel::Result{Outcome::wants_read} : channel_.read(service_.scratch);
    if (result.outcome == Outcome::closed || ending())
      co_return Heard::closed;
    if (result.outcome == Outcome::done) {
      reader_->append({service_.scratch.data(), result.bytes});
      if (reads % kReadTurn == 0)
        co_await yield();
    } else {
      arm(result.outcome);
      co_await wait(deadline);
    }
  }
}

auto Connection::answer_request() -> Task<After> {
  const Framing framing = reader_->framing();
  const auto answer = std::make_shared<PendingExchange>(
      service_.loop, std::move(reader_->request()), framing,
      PendingExchange::Options{service_.options.max_queued_bytes, framing.keep_alive && !service_.draining,
                               [this] { service_.body_bytes -= std::exchange(charged_bytes_, 0); }},
      [this] { wake(); });
  reader_->next();
  ++service_.counters.requests;
  const Answering answering(*answer, service_.counters.answering);

  answer->guarded([&] { service_.handler(answer); });
  const bool whole = co_await write_answer(*answer);
  if (whole)
    answer->finish();
  else
    answer->close();
  report(answer->request(), answer->status(), answer->bytes_taken(), whole);
  service_.body_bytes -= std::exchange(charged_bytes_, 0);
  if (!whole)
    co_return After::close;
  co_return answer->keep_alive() ? After::next_request : After::linger;
}

/// `keep_alive`: the end of the refused request is known, so the next one can be read.
auto Connection::refuse_request(Refusal refusal, bool keep_alive) -> Task<After> {
  ++service_.counters.refused;
  adopt_request_id();
  const Request request = std::move(reader_->request());
  const Framing framing = reader_->framing();
  keep_alive = keep_alive && framing.keep_alive && !service_.draining;
  const Response response = refuse(refusal);
  std::string text = response_head(response, request, framing, keep_alive, response.body.size());
  if (!framing.head_only)
    text += response.body;
  const bool whole = co_await send(text);
  report(request, refusal.status, whole ? text.size() : 0, whole);
  service_.body_bytes -= std::exchange(charged_bytes_, 0);
  reader_->next();
  if (!whole)
    co_return After::close;
  co_return keep_alive ? After::next_request : After::linger;
}

/// True once the socket has taken all of it; false if the peer has gone, or had to be cut.
auto Connection::write_answer(PendingExchange& answer) -> Task<bool> {
  Deadline deadline = Deadline::max(); // while bytes wait: when the peer must have taken some
  int in_flight = 0;                   // then
  size_t written = 0;                  // in this turn
  for (;;) {
    if (ending() || answer.failed())
      co_return false;
    if (const auto pending = answer.pending(); pending.empty()) {
      if (answer.produced())
        co_return true;
      deadline = Deadline::max();
    } else if (!write_armed_) {
      const auto result = channel_.write(pending);
      if (result.outcome == Outcome::closed)
        co_return false;
      if (result.outcome == Outcome::done) {
        answer.taken(result.bytes);
        deadline = Deadline::max();
        if ((written += result.bytes) >= kWriteTurn) {
          written = 0;
          co_await yield();
        }
        continue;
      }
      arm(result.outcome);
      if (deadline == Deadline::max()) {
        deadline = Clock::now() + service_.options.write_timeout;
        in_flight = channel_.in_flight();
      }
    }
    // An answer that is whole needs no watch: the socket will tell. Its peer may have said that it sends no
    // more.
    if (!answer.produced() && watch_peer() == Watched::gone)
      co_return false;
    if (Clock::now() >= deadline) {
      // The kernel's buffer may be large, and a slow peer take from it without there being room for more.
      if (const int left = channel_.in_flight(); left >= in_flight) {
        ++service_.counters.timeouts;
        co_return false;
      } else {
        in_flight = left;
        deadline = Clock::now() + service_.options.write_timeout;
      }
    }
    const bool reads_ahead = read_armed_ || answer.produced();
    co_await wait(reads_ahead ? deadline : std::min(deadline, Clock::now() + kHangUpCheck));
    written = 0;
  }
}

/// Notices that the peer left while its answer is made. What it sends meanwhile are later requests: they are
/// kept, up to a bound; with more of them in the way, a hang-up is looked for now and then.
auto Connection::watch_peer() -> Watched {
  while (!read_armed_) {
    if (reader_->buffered() >= kReadAhead)
      return channel_.peer_hung_up() ? Watched::gone : Watched::quiet;
    const auto result = channel_.read(std::span(service_.scratch).first(kReadAhead - reader_->buffered()));
    if (result.outcome == Outcome::closed)
      return Watched::gone;
    if (result.outcome == Outcome::done)
      reader_->append({service_.scratch.data(), result.bytes});
    else if (arm(result.outcome); result.outcome == Outcome::wants_write)
      break;
  }
  return Watched::quiet;
}

/// All of it, or false.
auto Connection::send(std::string_view bytes) -> Task<bool> {
  const auto deadline = Clock::now() + service_.options.write_timeout;
  while (!bytes.empty()) {
    const auto result = write_armed_ ? Channel::Result{Outcome::wants_write} : channel_.write(bytes);
    if (result.outcome == Outcome::closed || ending())
      co_return false;
    if (result.outcome == Outcome::done) {
      bytes.remove_prefix(result.bytes);
      continue;
    }
    if (Clock::now() >= deadline) {
      ++service_.counters.timeouts;
      co_return false;
    }
    arm(result.outcome);
    co_await wait(deadline);
  }
  co_return true;
}

/// Closing with unread bytes would reset the connection, and the answer could be lost on its way: says that
/// no more comes, and reads until the peer has closed, too.
auto Connection::linger() -> Task<void> {
  channel_.shut_down_writing();
  const auto deadline = Clock::now() + kLinger;
  for (size_t bytes = 0; bytes < kLingerBytes && !ending() && Clock::now() < deadline;) {
    const auto result = read_armed_ ? Channel::Result{Outcome::wants_read} : channel_.read(service_.scratch);
    if (result.outcome == Outcome::closed)
      break;
    if (result.outcome == Outcome::done) {
      bytes += result.bytes;
    } else {
      arm(result.outcome);
      co_await wait(deadline);
    }
  }
}

// ---- bookkeeping ----

void Connection::count_connections() {
  service_.counters.connections = service_.connections.size();
  if (service_.options.on_connections)
    service_.options.on_connections(service_.connections.size());
}

void Connection::charge_body() {
  const size_t bytes = reader_->body_bytes();
  service_.body_bytes += bytes - charged_bytes_;
  charged_bytes_ = bytes;
}

void Connection::adopt_request_id() {
  Request& request = reader_->request();
  if (!request.id.empty())
    return;
  const auto given = request.headers.find("x-request-id");
  request.id = given != request.headers.end() && is_sane_id(given->second) ? given->second : random_id();
}

void Connection::report(const Request& request, int status, uint64_t bytes, bool whole) {
  if (service_.options.on_answer)
    service_.options.on_answer({request, status, bytes, Clock::now() - begun_, whole});
}

// ---- waiting ----

auto Connection::wait(Deadline deadline) -> Task<void> {
  if (!woken_) {
    timer_.expires_at(deadline);
    boost::system::error_code cancelled;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
  woken_ = false;
}

auto Connection::yield() -> Task<void> {
  co_await asio::post(service_.loop->context(), asio::use_awaitable);
}

void Connection::arm(Outcome wanted) {
  const bool for_read = wanted == Outcome::wants_read;
  bool& armed = for_read ? read_armed_ : write_armed_;
  if (std::exchange(armed, true))
    return;
  socket_.async_wait(for_read ? socket_.wait_read : socket_.wait_write,
                     [self = shared_from_this(), &armed](const boost::system::error_code&) {
                       armed = false;
                       self->wake();
                     });
}

} // namespace millrace::http
