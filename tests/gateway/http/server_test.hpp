#pragma once

#include "gateway/http/server.hpp"
#include "tests/gateway/http/peer.hpp"

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

namespace millrace::http::test {

/// A handler that answers nothing: the test takes the exchange and does it.
class Held {
public:
  Handler handler() {
    return [this](std::shared_ptr<Exchange> exchange) {
      const std::lock_guard lock(mutex_);
      exchanges_.push_back(std::move(exchange));
      arrived_.notify_all();
    };
  }
  /// The next request that came; waits for it.
  std::shared_ptr<Exchange> take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(10), [this] { return !exchanges_.empty(); }))
      throw std::runtime_error("no request came");
    auto exchange = std::move(exchanges_.front());
    exchanges_.pop_front();
    return exchange;
  }
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return exchanges_.empty();
  }

private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Exchange>> exchanges_;
};

/// Something that happens once, on another thread.
class Signal {
public:
  void give() {
    const std::lock_guard lock(mutex_);
    ++count_;
    given_.notify_all();
  }
  /// False if it did not come within ten seconds.
  bool wait() {
    std::unique_lock lock(mutex_);
    return given_.wait_for(lock, std::chrono::seconds(10), [this] { return count_ > 0; });
  }
  int count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

private:
  mutable std::mutex mutex_;
  std::condition_variable given_;
  int count_ = 0;
};

/// Runs the call on the loop's thread and waits for its end.
inline void on_loop(Exchange& exchange, const std::function<void(Exchange&)>& call) {
  std::promise<void> done;
  exchange.post([&] {
    call(exchange);
    done.set_value();
  });
  done.get_future().wait();
}

inline void respond(Exchange& exchange, const std::string& body) {
  on_loop(exchange, [&](Exchange& e) { e.respond({.body = body}); });
}

class ServerTest : public testing::Test {
protected:
  /// A test that wants other options changes options_ before.
  void start(Handler handler) { server_.emplace(options_, open_paths_, std::move(handler)); }
  void start_held() { start(held_.handler()); }
  void start_echo() {
    start([](const std::shared_ptr<Exchange>& exchange) {
      exchange->respond({.body = exchange->request().path});
    });
  }
  Peer peer(int receive_bytes = 0) const { return Peer(server_->endpoint(), receive_bytes); }
  /// The server lives: a new client is answered.
  void expect_others_are_served() const { EXPECT_GE(peer().request("GET", "/others").answer().status, 200); }

  ServerOptions options_{.port = 0};
  std::vector<std::string> open_paths_;
  Held held_; // outlives the server, which may call it to its end
  std::optional<Server> server_;
};

} // namespace millrace::http::test
