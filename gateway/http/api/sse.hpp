#pragma once

// The framing of server-sent events, and ids to rejoin a stream with: "choice:seq" of what was sent last, "0:12,1:9" for
// several choices.

#include "gateway/streams.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::http {

/// The last seq that was sent of each choice.
class EventId {
public:
  EventId() = default;
  explicit EventId(const Cursor& cursor);

  void sent(int32_t choice, int64_t seq);
  /// The last event was sent: who comes back with this id needs nothing more.
  void end() { ended_ = true; }
  /// Empty while nothing numbered was sent.
  std::string text() const;

private:
  std::vector<int64_t> last_; // -1: none yet
  bool ended_ = false;
};

/// Where a reader with this Last-Event-ID goes on; nullopt if it is not an id of ours.
std::optional<Cursor> cursor_after(std::string_view last_event_id);
/// Where from_seq points: "12" for every choice (of at most `choices`), or "0:12,1:9".
std::optional<Cursor> cursor_from(std::string_view from_seq, size_t choices);

/// Appends one event; `data` is one line. `name` and `id` may be empty.
void append_event(std::string& out, std::string_view name, std::string_view id, std::string_view data);

/// A comment, which readers skip: it keeps proxies and time-outs quiet.
inline constexpr std::string_view kPing = ": ping\n\n";

} // namespace millrace::http
