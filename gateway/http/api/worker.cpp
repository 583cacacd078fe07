#include "gateway/http/api/worker.hpp"

#include "messages/report.hpp"

#include <exception>

namespace millrace::http {

Worker::Worker(size_t max_jobs, size_t max_bytes)
    : max_jobs_(max_jobs), max_bytes_(max_bytes), thread_([this] { run(); }) {}

Worker::~Worker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Worker::submit(size_t bytes, std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    // A single large one is always taken, or it would never be.
    if (jobs_.size() >= max_jobs_ || (!jobs_.empty() && bytes_ + bytes > max_bytes_))
      return false;
    jobs_.push_back({bytes, std::move(job)});
    bytes_ += bytes;
  }
  wake_.notify_one();
  return true;
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_)
      return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    bytes_ -= job.bytes;
    lock.unlock();
    try {
      job.run();
    } catch (const std::exception& error) {
      report("http", error.what());
    }
    job.run = nullptr; // outside the lock: it may hold the last reference to a connection
    lock.lock();
  }
}

} // namespace millrace::http
