#include "gateway/http/api/stream_reader.hpp"

#include "messages/codec.hpp"

#include <cassert>

namespace millrace::http {

void StreamReader::start(std::function<void()> ready) {
  ready_ = std::move(ready);
  streams_.watch(stream_, shared_from_this());
  wake(stream_); // for what was published before
}

void StreamReader::stop() {
  if (!ready_)
    return;
  ready_ = nullptr;
  streams_.unwatch(stream_, this);
}

StreamReader::Batch StreamReader::read(size_t max_bytes) {
  Streams::Piece piece = streams_.read(stream_, cursor_, max_bytes);
  Batch batch;
  batch.lag = piece.lag;
  batch.more = piece.more;
  batch.known = piece.known;
  caught_up_ = caught_up_ || !piece.more;
  batch.events.reserve(piece.events.size());
  for (const LoggedEvent& logged : piece.events) {
    if (logged.seq >= 0) {
      ++events_;
      bytes_ += logged.body.size();
    }
    auto event = decode_event({static_cast<const char*>(logged.body.data()), logged.body.size()});
    assert(std::holds_alternative<Event>(event)); // the log holds what we encoded
    if (Event* held = std::get_if<Event>(&event))
      batch.events.push_back(std::move(*held));
  }
  return batch;
}

std::string StreamReader::position() const {
  std::string out;
  for (size_t choice = 0; choice < cursor_.next.size(); ++choice) {
    if (choice > 0)
      out += ',';
    out += std::to_string(choice) + ':' + std::to_string(cursor_.next[choice]);
  }
  return out.empty() ? "0" : out;
}

bool StreamReader::behind(size_t max_bytes) const {
  if (!caught_up_ || events_ == 0)
    return false;
  int64_t behind = 0;
  const std::vector<int64_t> next = streams_.next_seqs(stream_);
  for (size_t choice = 0; choice < next.size(); ++choice)
    behind += next[choice] - (choice < cursor_.next.size() ? cursor_.next[choice] : 0);
  return behind > 0 && static_cast<uint64_t>(behind) * (bytes_ / events_) > max_bytes;
}

void StreamReader::wake(const StreamId&) {
  if (noted_.exchange(true))
    return;
  call_->post([weak = weak_from_this()] {
    const auto held = weak.lock();
    if (!held)
      return;
    held->noted_ = false; // before the reading: what comes meanwhile wakes again
    if (held->ready_) {
      const auto ready = held->ready_; // it may stop this reader
      ready();
    }
  });
}

} // namespace millrace::http
