#pragma once

#include "gateway/http/api/call.hpp"

#include <memory>
#include <string>

namespace millrace::http {

/// Hands an answer's bytes to its peer's queue no faster than that empties. A server cuts a peer whose queue grows past
/// its own bound, and a single event may be larger than that.
class PacedOutput {
public:
  PacedOutput(std::shared_ptr<Call> call, size_t max_queued) : call_(std::move(call)), max_queued_(max_queued) {}

  void write(const std::string& piece);
  /// Passes on what fits; true if all did and there is room for more. Else try again when the call has drained.
  bool pump();
  /// Bytes that wait here.
  size_t held() const { return waiting_.size() - begin_; }

private:
  std::shared_ptr<Call> call_;
  size_t max_queued_;
  std::string waiting_;
  size_t begin_ = 0; // of waiting_: what was passed on lies before it
};

} // namespace millrace::http
