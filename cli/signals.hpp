#pragma once

#include <csignal>
#include <functional>
#include <thread>

namespace millrace {

/// Takes SIGINT and SIGTERM away from the process and hands them to a function on a thread of its own, where
/// it may lock and wait. Make it before any other thread: they inherit the mask.
class SignalWatch {
public:
  /// count: 1 for the first signal, whichever it is.
  using Handler = std::function<void(int signal, int count)>;

  explicit SignalWatch(Handler handler);
  /// Ends the thread; the signals do again what they did before.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

private:
  void watch();

  Handler handler_;
  sigset_t before_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

} // namespace millrace
