#pragma once

#include "gateway/http/server.hpp"
#include "tests/gateway/http/peer.hpp"

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>

namespace millrace::http::test {

/// A handler that answers nothing: the test does, on the loop's thread, when it wants to.
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
    if (!arrived_.wait_for(lock, std::chrono::seconds(10), [this] { return !exchanges_.empty(); })) {
      ADD_FAILURE() << "no request came";
      return nullptr;
    }
    auto exchange = std::move(exchanges_.front());
    exchanges_.pop_front();
    return exchange;
  }
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return exchanges_.size();
  }

private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Exchange>> exchanges_;
};

/// Runs the call on the loop's thread and waits for its end.
inline void on_loop(Exchange& exchange, std::function<void(Exchange&)> call) {
  std::promise<void> done;
  exchange.post([&] {
    call(exchange);
    done.set_value();
  });
  done.get_future().wait();
}

class ServerTest : public testing::Test {
protected:
  /// A test that wants other options changes options_ before.
  void start(Handler handler) { server_.emplace(options_, open_paths_, std::move(handler)); }
  Peer peer(int receive_bytes = 0) { return Peer(server_->endpoint(), receive_bytes); }

  ServerOptions options_{.port = 0};
  std::vector<std::string> open_paths_;
  std::optional<Server> server_;
};

} // namespace millrace::http::test
