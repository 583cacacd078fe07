#pragma once

#include <utility> // asio's awaitable.hpp lacks it

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <functional>
#include <mutex>

namespace millrace::http {

/// The event loop, which exchanges may outlive: then it takes no more calls.
class Loop {
public:
  boost::asio::io_context& context() { return context_; }

  /// Any thread.
  void post(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    if (open_)
      boost::asio::post(context_, std::move(call));
  }
  /// What was posted before is still run.
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }

private:
  boost::asio::io_context context_{1}; // one thread runs it
  std::mutex mutex_;
  bool open_ = true;
};

} // namespace millrace::http
