#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

namespace millrace {

/// From the threads that must not wait to the one that may. Unbounded: the pipeline bounds what it has in
/// flight.
template <class T> class EventQueue {
public:
  void push(T value) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(value));
    }
    filled_.notify_one();
  }

  T pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return !queue_.empty(); });
    T value = std::move(queue_.front());
    queue_.pop_front();
    return value;
  }

private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<T> queue_;
};

} // namespace millrace
