#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::load {

/// Samples of one quantity, and their order statistics.
class Samples {
public:
  void add(double value) { values_.push_back(value); }
  void add(const Samples& other) { values_.insert(values_.end(), other.values_.begin(), other.values_.end()); }
  size_t size() const { return values_.size(); }
  /// The smallest value that at least `share` of them do not exceed; 0 without samples.
  double quantile(double share) const;
  /// "p50 1.2, p99 3.4, max 5.6 ms"
  std::string milliseconds() const;

private:
  mutable std::vector<double> values_;
};

/// What the kernel says of a process; zeros if there is none.
struct ProcessUsage {
  int64_t resident_bytes = 0;
  double cpu_seconds = 0;
  int64_t descriptors = 0;
};
ProcessUsage usage_of(int pid);

/// As printf, with a line's end.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

} // namespace millrace::load
