#pragma once

// What happens to requests, as lines of the log: opened, joined, refused, cancelled, finished. No text of a
// prompt or an answer, unless somebody asked for it.

#include "gateway/logging.hpp"
#include "gateway/principal.hpp"
#include "messages/generation.hpp"
#include "messages/stream.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace millrace {

/// What the lines of a request have in common; the streams keep one for each.
struct RequestTrail {
  std::string stream; // the first 8 hex digits of the stream id: who knows all may read it
  Origin origin;
  std::string principal;
  std::string reasons; // how its choices ended, in that order
  std::string error;   // of a choice that ended with one
};

/// Thread-safe; never blocks. Refusals cost their sender nothing, so of those at most kRefusalsPerSecond are
/// written; a line tells how many were not.
class RequestLog {
public:
  static constexpr int kRefusalsPerSecond = 100;

  RequestLog(std::shared_ptr<Log> log, bool prompts) : log_(std::move(log)), prompts_(prompts) {}

  /// A request was admitted: begins its trail.
  void opened(const Generate& request, const Principal& who, const Origin& origin, RequestTrail& trail);
  /// It was one that had been made before.
  void joined(const StreamId& stream, const Principal& who, const Origin& origin);
  void refused(const StreamId& stream, const Principal& who, const Origin& origin, const Failure& failure);
  void cancelled(const StreamId& stream, const Principal& who, const Origin& origin);
  /// An event that its stream took.
  void event(const Event& event, RequestTrail& trail);

private:
  bool may_tell_refusal();
  void refused(const RequestTrail& trail, std::string_view code, std::string_view field);

  std::shared_ptr<Log> log_;
  bool prompts_;
  std::mutex mutex_; // of what follows
  std::chrono::steady_clock::time_point second_{};
  int told_ = 0;       // refusals of this second
  int64_t untold_ = 0; // of all before it
};

} // namespace millrace
