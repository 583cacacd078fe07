#pragma once

#include <chrono>
#include <deque>

namespace millrace {

/// How often something may be restarted: at most so many times in any window.
class RestartBudget {
public:
  using Time = std::chrono::steady_clock::time_point;
  RestartBudget(size_t restarts, std::chrono::nanoseconds window) : restarts_(restarts), window_(window) {}

  /// Spends a restart; false if none is left.
  bool spend(Time now) {
    while (!spent_.empty() && now - spent_.front() >= window_)
      spent_.pop_front();
    if (spent_.size() >= restarts_)
      return false;
    spent_.push_back(now);
    return true;
  }

private:
  size_t restarts_;
  std::chrono::nanoseconds window_;
  std::deque<Time> spent_;
};

} // namespace millrace
