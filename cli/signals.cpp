#include "cli/signals.hpp"

#include <cerrno>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

namespace millrace {

SignalWatch::SignalWatch(Handler handler) : handler_(std::move(handler)) {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &watched, &before_);
  signal_fd_ = ::signalfd(-1, &watched, SFD_CLOEXEC);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || stop_fd_ < 0)
    throw std::system_error(errno, std::generic_category(), "signalfd");
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  ::eventfd_write(stop_fd_, 1);
  thread_.join();
  ::close(stop_fd_);
  ::close(signal_fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::watch() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  for (int count = 1;;) {
    if (::poll(fds, 2, -1) < 0)
      continue; // EINTR
    if (fds[1].revents != 0)
      return;
    signalfd_siginfo info;
    if (::read(signal_fd_, &info, sizeof info) == sizeof info)
      handler_(int(info.ssi_signo), count++);
  }
}

} // namespace millrace
