#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace millrace::http {

/// A thread for what takes too long on an event loop. Bounded: who finds it full says so to its client.
class Worker {
public:
  /// `max_bytes` of all inputs that wait.
  Worker(size_t max_jobs, size_t max_bytes);
  /// Drops what waits and ends the thread.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// False, and nothing done, if it is full. What the job throws is reported and
  /// costs nobody else's.
  bool submit(size_t bytes, std::function<void()> job);

private:
  struct Job {
    size_t bytes;
    std::function<void()> run;
  };
  void run();

  const size_t max_jobs_, max_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_; // the one that runs is not among them
  size_t bytes_ = 0;
  bool stop_ = false;
  std::thread thread_; // last: it uses the others
};

} // namespace millrace::http
