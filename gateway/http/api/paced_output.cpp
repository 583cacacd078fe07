#include "gateway/http/api/paced_output.hpp"

#include <algorithm>

namespace millrace::http {

void PacedOutput::write(const std::string& piece) {
  waiting_ += piece;
  pump();
}

bool PacedOutput::pump() {
  for (size_t queued; held() > 0 && (queued = call_->queued()) < max_queued_;) {
    const size_t size = std::min(max_queued_ - queued, held());
    call_->write(waiting_.substr(begin_, size));
    begin_ += size;
  }
  if (held() > 0)
    return false;
  waiting_.clear();
  begin_ = 0;
  return call_->queued() < max_queued_;
}

} // namespace millrace::http
