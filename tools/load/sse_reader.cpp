#include "tools/load/sse_reader.hpp"

namespace millrace::load {

std::vector<SseEvent> SseReader::feed(std::string_view bytes) {
  std::vector<SseEvent> events;
  rest_ += bytes;
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string_view line(rest_.data() + begin, end - begin);
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    take_line(line, events);
  }
  rest_.erase(0, begin);
  return events;
}

void SseReader::take_line(std::string_view line, std::vector<SseEvent>& events) {
  if (line.empty()) {
    if (any_)
      events.push_back(std::move(event_));
    event_ = {};
    any_ = false;
    return;
  }
  if (line[0] == ':') {
    ++comments_;
    return;
  }
  const size_t colon = line.find(':');
  std::string_view value = colon == std::string_view::npos ? std::string_view{} : line.substr(colon + 1);
  if (value.starts_with(' '))
    value.remove_prefix(1);
  const std::string_view field = line.substr(0, colon);
  any_ = true;
  if (field == "id")
    event_.id = value;
  else if (field == "event")
    event_.name = value;
  else if (field == "data")
    event_.data.append(event_.data.empty() ? "" : "\n").append(value);
}

} // namespace millrace::load
