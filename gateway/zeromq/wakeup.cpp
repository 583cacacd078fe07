#include "gateway/zeromq/wakeup.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace millrace {

Wakeup::Wakeup() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (descriptor_ < 0)
    throw std::system_error(errno, std::generic_category(), "eventfd");
}

Wakeup::~Wakeup() {
  close(descriptor_);
}

// Both can only fail with EAGAIN, which means that the flag is raised, or down, already.
void Wakeup::signal() {
  const uint64_t one = 1;
  (void)!write(descriptor_, &one, sizeof one);
}

void Wakeup::clear() {
  uint64_t count;
  (void)!read(descriptor_, &count, sizeof count);
}

} // namespace millrace
