#pragma once

// Exchanges without sockets, on a loop that a test turns by hand.

#include "gateway/http/exchange.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace millrace::http::test {

class FakeLoop {
public:
  /// Any thread.
  void post(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(call));
  }
  void after(std::chrono::milliseconds delay, std::function<void()> call) {
    timers_.emplace(now_ + delay, std::move(call));
  }

  /// All that was posted, and what that posts.
  void run() {
    while (auto call = next())
      call();
  }
  /// Lets time pass.
  void advance(std::chrono::milliseconds time) {
    const auto end = now_ + time;
    run();
    while (!timers_.empty() && timers_.begin()->first <= end) {
      const auto call = std::move(timers_.begin()->second);
      now_ = timers_.begin()->first;
      timers_.erase(timers_.begin());
      call();
      run();
    }
    now_ = end;
  }

private:
  std::function<void()> next() {
    const std::lock_guard lock(mutex_);
    if (posted_.empty())
      return nullptr;
    auto call = std::move(posted_.front());
    posted_.pop_front();
    return call;
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> posted_;
  std::multimap<std::chrono::milliseconds, std::function<void()>> timers_;
  std::chrono::milliseconds now_{0};
};

/// Takes everything at once, until the test tells it to be slow.
class FakeExchange final : public Exchange, public std::enable_shared_from_this<FakeExchange> {
public:
  FakeExchange(FakeLoop& loop, Request request) : loop_(loop), request_(std::move(request)) {}

  const Request& request() const override { return request_; }
  std::string take_body() override { return std::exchange(request_.body, {}); }
  void respond(Response response) override {
    if (over_)
      return;
    if (std::exchange(failing_answer_, false))
      throw std::bad_alloc();
    head_ = std::move(response);
    body_ = head_->body;
    if (!slow_)
      head_->kept = nullptr;
    finish();
  }
  void begin(Response head) override {
    if (!over_)
      head_ = std::move(head);
  }
  void write(std::string piece) override {
    if (over_)
      return;
    body_ += piece;
    if (slow_)
      queued_ += piece.size();
    most_queued_ = std::max(most_queued_, queued_);
  }
  void end() override { finish(); }
  size_t queued() const override { return queued_; }
  void on_drained(std::function<void()> call) override { on_drained_ = std::move(call); }
  void on_close(std::function<void()> call) override { on_close_ = std::move(call); }
  void post(std::function<void()> call) override {
    if (failing_posts_ > 0) {
      --failing_posts_;
      throw std::bad_alloc();
    }
    loop_.post([self = shared_from_this(), call = std::move(call)] { self->guarded(call); });
  }
  void after(std::chrono::milliseconds delay, std::function<void()> call) override {
    loop_.after(delay, [weak = weak_from_this(), call = std::move(call)] {
      if (const auto self = weak.lock(); self && !self->over_)
        call();
    });
  }

  // ---- the peer ----

  /// Leaves.
  void close() {
    if (std::exchange(over_, true))
      return;
    on_drained_ = nullptr;
    if (const auto call = std::exchange(on_close_, nullptr))
      call();
  }
  void be_slow() { slow_ = true; }
  /// The next calls of post() find no memory.
  void fail_posts(int count) { failing_posts_ = count; }
  /// Nor does the next call of respond().
  void fail_answer() { failing_answer_ = true; }
  /// Takes what waits.
  void drain() {
    queued_ = 0;
    if (over_ && head_)
      head_->kept = nullptr;
    if (const auto call = std::exchange(on_drained_, nullptr))
      call();
  }

  const std::optional<Response>& head() const { return head_; }
  int status() const { return head_ ? head_->status : 0; }
  const std::string& body() const { return body_; }
  bool ended() const { return ended_; }
  size_t most_queued() const { return most_queued_; }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : head_->headers)
      if (key == name)
        return value;
    return {};
  }

private:
  void finish() {
    if (over_)
      return;
    over_ = ended_ = true;
    on_close_ = on_drained_ = nullptr;
  }
  /// What a callback throws is the client's 500, and the end of the exchange.
  void guarded(const std::function<void()>& call) {
    try {
      call();
    } catch (const std::exception&) {
      if (!head_)
        respond({.status = 500});
      finish();
    }
  }

  FakeLoop& loop_;
  Request request_;
  std::optional<Response> head_;
  std::string body_;
  bool over_ = false, ended_ = false, slow_ = false, failing_answer_ = false;
  std::atomic<int> failing_posts_ = 0;
  size_t queued_ = 0, most_queued_ = 0;
  std::function<void()> on_drained_, on_close_;
};

} // namespace millrace::http::test
