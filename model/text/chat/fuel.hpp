#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace millrace::jinja {

/// A template cannot go on; becomes a TemplateError that names the line. what() holds no text of the input.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What one render may use up. Everything that takes time or memory asks here first, so that a template ends
/// within its budget however its loops are nested.
class Fuel {
public:
  Fuel(int64_t steps, size_t max_bytes, int max_depth)
      : steps_(steps), max_bytes_(max_bytes), max_depth_(max_depth) {}

  /// For work that takes about as long as evaluating `count` nodes; throws Failure when there is nothing
  /// left.
  void spend(size_t count = 1) {
    if (count > static_cast<uint64_t>(steps_ < 0 ? 0 : steps_))
      throw Failure("the template takes too many steps");
    steps_ -= static_cast<int64_t>(count);
  }
  /// For a text of this size that is made or searched: a step each 64 bytes, and no text longer than the
  /// output may be.
  void spend_bytes(size_t size) {
    check_size(size);
    spend(size / 64);
  }
  /// For a walk through a text character by character.
  void spend_scan(size_t size) { spend(size / 16); }
  void check_size(size_t size) const {
    if (size > max_bytes_)
      throw Failure("the template makes too long a text");
  }
  int max_depth() const { return max_depth_; } // of values

  /// Held by each evaluation that recurses. One level of the syntax or of macro calls takes several of these.
  class Nesting {
  public:
    explicit Nesting(Fuel& fuel) : fuel_(fuel) {
      if (fuel_.nesting_ >= 8 * fuel_.max_depth_)
        throw Failure("the template recurses too deeply");
      ++fuel_.nesting_;
    }
    ~Nesting() { --fuel_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

  private:
    Fuel& fuel_;
  };

private:
  int64_t steps_;
  size_t max_bytes_;
  int max_depth_;
  int nesting_ = 0;
};

} // namespace millrace::jinja
