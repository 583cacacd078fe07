#pragma once

#include <chrono>
#include <string>

namespace millrace {

/// A bar on stderr while something takes long enough to wonder. Nothing at all where stderr is no terminal,
/// nor in the first 200 ms; it wipes itself away at the end.
class ProgressBar {
public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// share: 0 … 1. One thread at a time.
  void update(double share);

private:
  std::string what_;
  bool enabled_;
  bool drawn_ = false;
  int percent_ = -1;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

} // namespace millrace
