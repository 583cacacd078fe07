#include "kernels/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <immintrin.h>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace millrace {
namespace {

// Long enough to bridge the serial steps between two loops of a pass, short against the time slice of a
// neighbour.
constexpr auto kSpinTime = std::chrono::microseconds(50);

/// Spins until done() or the time is up; the last value of done().
template <class Done> bool spin_until(Done done) {
  constexpr int kPausesPerLook = 8; // a look at the clock costs about as much as a pause
  for (auto end = std::chrono::steady_clock::now() + kSpinTime; std::chrono::steady_clock::now() < end;)
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done())
        return true;
      _mm_pause();
    }
  return done();
}

/// Where threads sleep until a condition on atomics holds.
class Sleepers {
public:
  /// done must read its atomics with sequential consistency, and whoever makes it true must write so before
  /// wake_all(): then either the waker sees the sleeper or the sleeper sees the write.
  template <class Done> void wait_until(Done done) {
    if (spin_until(done))
      return;
    std::unique_lock lock{mutex_};
    ++count_;
    condition_.wait(lock, done);
    --count_;
  }

  void wake_all() {
    if (count_ == 0)
      return;
    { std::lock_guard lock{mutex_}; } // a sleeper is now either in wait() or has yet to look
    condition_.notify_all();
  }

private:
  std::atomic<int> count_ = 0;
  std::mutex mutex_;
  std::condition_variable condition_;
};

/// CPUs that the control group's quota allows, or 0 for no limit. Read once, at start.
double cgroup_cpus() {
  std::string quota;
  double period = 0;
  if (std::ifstream file{"/sys/fs/cgroup/cpu.max"}; file >> quota >> period && quota != "max" && period > 0)
    return std::strtod(quota.c_str(), nullptr) / period;
  return 0;
}

} // namespace

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return std::max(1, int(std::thread::hardware_concurrency()));

  std::set<std::string> cores; // each named by its list of hyper-threads
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) {
      std::string siblings = "cpu " + std::to_string(cpu);
      std::ifstream file{"/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                         "/topology/thread_siblings_list"};
      std::getline(file, siblings);
      cores.insert(siblings);
    }
  int n = int(cores.size());
  if (double quota = cgroup_cpus(); quota > 0)
    n = std::min(n, int(quota + 0.5));
  return std::max(1, n);
}

// A loop is published by one store to `ticket`: the loop's number in the upper half, the tasks not yet taken
// in the lower. A thread takes a task by compare-and-swap on the whole word, so one that comes late can never
// take a task of a later loop with what it read of an earlier one, and the caller needs to wait for tasks
// only, not for threads that have not woken yet.
struct ThreadPool::State {
  std::atomic<uint64_t> ticket = 0;
  std::atomic<int> n = 0;
  std::atomic<const std::function<void(int, int)>*> task = nullptr;
  std::atomic<int> unfinished = 0;
  std::atomic<bool> stopping = false;

  std::mutex failure_mutex;
  std::exception_ptr failure;

  Sleepers workers, caller;
  std::vector<std::thread> threads;

  ~State() {
    stopping = true;
    workers.wake_all();
    for (auto& thread : threads)
      thread.join();
  }

  static uint32_t waiting_tasks(uint64_t t) { return uint32_t(t); }

  void work(int thread) {
    uint64_t t = ticket.load();
    while (waiting_tasks(t) > 0) {
      int i = n.load() - int(waiting_tasks(t));
      auto* f = task.load();
      if (!ticket.compare_exchange_weak(t, t - 1))
        continue;
      // The swap proves that the loop was still running, so i and f belong to it.
      try {
        (*f)(i, thread);
      } catch (...) {
        std::lock_guard lock{failure_mutex};
        failure = std::current_exception();
      }
      if (--unfinished == 0)
        caller.wake_all();
      t = ticket.load();
    }
  }

  void serve(int thread) {
    for (;;) {
      workers.wait_until([&] { return waiting_tasks(ticket) > 0 || stopping; });
      if (stopping)
        return;
      work(thread);
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : state_{std::make_unique<State>()} {
  assert(n_threads >= 1);
  for (int thread = 1; thread < n_threads; ++thread)
    state_->threads.emplace_back([state = state_.get(), thread] { state->serve(thread); });
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const {
  return int(state_->threads.size()) + 1;
}

void ThreadPool::run_loop(int n, const std::function<void(int, int)>& task) {
  if (n <= 0)
    return;
  if (n == 1)
    return task(0, 0);

  State& s = *state_;
  assert(s.unfinished == 0 && "one loop at a time");
  s.n = n;
  s.task = &task;
  s.unfinished = n;
  uint64_t loop = (s.ticket >> 32) + 1;
  s.ticket = loop << 32 | uint32_t(n);
  s.workers.wake_all();

  s.work(0);
  s.caller.wait_until([&] { return s.unfinished == 0; });
  if (s.failure)
    std::rethrow_exception(std::exchange(s.failure, nullptr));
}

} // namespace millrace
