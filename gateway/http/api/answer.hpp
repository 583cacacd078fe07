#pragma once

// Answers that take their time, and what bounds them.

#include "gateway/http/api/answer_memory.hpp"
#include "gateway/http/api/stream_reader.hpp"

#include <chrono>
#include <string>

namespace millrace::http {

/// How much of an answer may be in memory, and for how long it may be silent.
struct AnswerBounds {
  std::chrono::milliseconds ping{15'000};
  size_t max_queued_bytes = 256u << 10;
  size_t max_lag_bytes = 4u << 20;
  size_t max_answer_bytes = 32u << 20; // of one that is not streamed
  std::shared_ptr<AnswerMemory> memory = {}; // of all that are not streamed
};

/// Read from a stream's log at once, in its form; and how often until others get their turn.
inline constexpr size_t kReadBytes = 32u << 10;
inline constexpr int kReadsAtOnce = 16;

class Answer {
public:
  virtual ~Answer() = default;
  /// Begins; may answer at once.
  virtual void start() = 0;
  /// Ends the reading, once, and tells its owner that it is over. The streams must still be there.
  virtual void stop() = 0;
};

/// Appends the event that tells a reader it is too slow, and where it may come back:
/// {"type": "lagging", "stream", "from_seq", "error": {…}}.
void append_lagging(std::string& out, const StreamReader& reader);

} // namespace millrace::http
