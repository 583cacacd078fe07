#include "gateway/http/api/paced_output.hpp"

#include <algorithm>

namespace millrace::http {

void PacedOutput::write(const std::string& piece) {
  waiting_ += piece;
  pump();
}

bool PacedOutput::pump() {
  const size_t queued = call_->queued();
  const size_t room = queued < max_queued_ ? max_queued_ - queued : 0;
  const size_t size = std::min(room, held());
  call_->write(waiting_.substr(begin_, size));
  begin_ += size;
  if (held() > 0)
    return false;
  waiting_.clear();
  begin_ = 0;
  return size < room;
}

} // namespace millrace::http
