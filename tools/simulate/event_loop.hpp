#pragma once

// Virtual time, and what happens in it one after the other: the same each time it is run.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

namespace millrace::simulate {

using Action = std::function<void()>;

class EventLoop {
public:
  using Time = std::chrono::steady_clock::time_point;

  Time now() const { return now_; }
  /// Of the same moment, what was asked for first comes first.
  void at(Time time, Action action) { actions_.emplace(std::pair(time, next_++), std::move(action)); }
  void after(double seconds, Action action) {
    at(now_ + std::chrono::nanoseconds(int64_t(seconds * 1e9 + 0.5)), std::move(action));
  }
  /// Until nothing is left to be done. Calls `quiet` when nothing is left to be done in a moment.
  void run(const Action& quiet) {
    while (!actions_.empty()) {
      const auto first = actions_.extract(actions_.begin());
      now_ = first.key().first;
      first.mapped()();
      if (actions_.empty() || actions_.begin()->first.first > now_)
        quiet();
    }
  }

private:
  std::map<std::pair<Time, uint64_t>, Action> actions_;
  Time now_{};
  uint64_t next_ = 0;
};

/// Messages of one actor: handled one by one in their order, but none while it is blocked.
class Mailbox {
public:
  explicit Mailbox(EventLoop& loop) : loop_(loop) {}

  void send(Action message) {
    messages_.push_back(std::move(message));
    schedule();
  }
  void block() { blocked_ = true; }
  void unblock() {
    blocked_ = false;
    for (size_t i = 0; i < messages_.size(); ++i)
      schedule();
  }
  bool empty() const { return messages_.empty(); }

private:
  void schedule() {
    loop_.at(loop_.now(), [this] { handle(); });
  }
  void handle() {
    if (blocked_ || messages_.empty())
      return;
    const Action message = std::move(messages_.front());
    messages_.pop_front();
    message();
  }

  EventLoop& loop_;
  std::deque<Action> messages_;
  bool blocked_ = false;
};

/// Runs passes one at a time, first come first served, as Device does.
class VirtualDevice {
public:
  explicit VirtualDevice(EventLoop& loop) : loop_(loop) {}

  void forward(double seconds, Action then) {
    line_.push_back({seconds, std::move(then)});
    if (line_.size() == 1)
      begin();
  }
  bool idle() const { return line_.empty(); }
  int64_t passes() const { return passes_; }
  double busy_seconds() const { return busy_seconds_; }

private:
  void begin() {
    loop_.after(line_.front().first, [this] { end(); });
  }
  void end() {
    const auto [seconds, then] = std::move(line_.front());
    line_.pop_front();
    ++passes_;
    busy_seconds_ += seconds;
    if (!line_.empty())
      begin();
    then();
  }

  EventLoop& loop_;
  std::deque<std::pair<double, Action>> line_; // the first one runs
  int64_t passes_ = 0;
  double busy_seconds_ = 0;
};

} // namespace millrace::simulate
