#pragma once

#include <functional>
#include <memory>

namespace millrace {

/// Physical cores that this process may use: its affinity mask, hyper-threads of one core counted once, and
/// no more than the CPU quota of its control group. At least 1.
int physical_cores();

/// A fixed set of threads that run the tasks of one loop at a time. The caller is one of them.
/// Workers spin briefly, then sleep: an idle pool uses no CPU.
class ThreadPool {
public:
  /// n_threads >= 1, the caller included; 1 starts no thread.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls task(i, thread) once for each i in [0, n), on some thread 0 <= thread < size(), and returns
  /// when all have returned. Which thread takes which i is not fixed, so a task must own what it writes.
  /// One caller at a time (the device's monitor sees to it); not from within a task. An exception of a
  /// task is rethrown here once all have ended; of several, one.
  template <class Task> void run(int n, Task&& task) {
    run_loop(n, std::ref(task)); // by reference: a std::function of one allocates nothing
  }

private:
  void run_loop(int n, const std::function<void(int i, int thread)>& task);

  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
