#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::load {

/// One event of a server-sent event stream.
struct SseEvent {
  std::string id, name, data;
};

/// Cuts a stream of bytes into events. Comments are counted, not told.
class SseReader {
public:
  /// The events that these bytes complete.
  std::vector<SseEvent> feed(std::string_view bytes);
  size_t comments() const { return comments_; }

private:
  void take_line(std::string_view line, std::vector<SseEvent>& events);

  std::string rest_;
  SseEvent event_;
  bool any_ = false;
  size_t comments_ = 0;
};

} // namespace millrace::load
