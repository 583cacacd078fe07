#pragma once

namespace millrace {

/// A flag that any thread may raise and a poll loop sees as a readable descriptor.
class Wakeup {
public:
  /// Throws std::system_error if there is no descriptor left.
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  void signal();
  void clear();
  int descriptor() const { return descriptor_; }

private:
  int descriptor_;
};

} // namespace millrace
