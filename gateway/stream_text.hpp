#pragma once

// What the choices of a stream have said so far, for who looks at it late. A stream is read once: each look goes
// on where the last one stopped. Streams that nobody looks at cost nothing.

#include "gateway/stream_log.hpp"
#include "messages/stream.hpp"

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

/// The text of one stream, as far as its log was read.
class StreamText {
public:
  /// Of more than `max_bytes` of all choices together, the oldest text of the longest one goes.
  StreamText(size_t choices, size_t max_bytes) : max_bytes_(max_bytes), choices_(choices) {}

  /// Where to read on.
  Cursor& cursor() { return cursor_; }
  /// What was read there.
  void take(const StreamLog::Piece& piece);
  /// Whether events before these, one for each choice, were not read yet.
  bool behind(const std::vector<int64_t>& ends) const;
  /// Forgets what was said before an event, as the log has.
  void drop_before(size_t choice, int64_t seq);

  std::vector<ChoiceSnapshot> choices() const;
  /// Of memory.
  size_t bytes() const;

private:
  struct Choice {
    int64_t first = 0;
    std::string text;
    size_t begin = 0;           // of what is left of the text
    std::deque<uint32_t> sizes; // of each event's part of it
    std::string reason;

    int64_t next() const { return first + static_cast<int64_t>(sizes.size()); }
    size_t length() const { return text.size() - begin; }
  };
  void drop_oldest(Choice& choice);
  void fit();

  size_t max_bytes_;
  Cursor cursor_;
  std::vector<Choice> choices_;
  size_t length_ = 0; // of all of them
};

/// The texts that were wanted last, as many as memory may take. Not thread-safe.
class StreamTexts {
public:
  explicit StreamTexts(size_t max_bytes) : max_bytes_(max_bytes) {}

  /// For who reads on, and puts it back.
  std::optional<StreamText> take(const StreamId& stream);
  void put(const StreamId& stream, StreamText text);
  void forget(const StreamId& stream) { take(stream); }

private:
  using Latest = std::list<std::pair<StreamId, StreamText>>;

  const size_t max_bytes_;
  size_t bytes_ = 0;
  Latest latest_; // first
  StreamTable<Latest::iterator> places_;
};

} // namespace millrace
