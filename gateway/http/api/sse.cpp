#include "gateway/http/api/sse.hpp"

#include <charconv>

namespace millrace::http {
namespace {

constexpr std::string_view kEnd = "end", kAlsoEnd = ",end"; // alone, and behind positions
constexpr size_t kMaxChoices = 1024; // of an id; a server allows far fewer

std::optional<int64_t> number(std::string_view digits) {
  uint64_t value = 0; // takes no sign
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value > (uint64_t{1} << 62))
    return std::nullopt;
  return static_cast<int64_t>(value);
}

/// "0:12,1:9" -> {12, 9}; `absent` stands where a choice is not named.
std::optional<std::vector<int64_t>> positions(std::string_view text, int64_t absent) {
  std::vector<int64_t> out;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    more = comma != text.npos;
    text.remove_prefix(more ? comma + 1 : text.size());
    const size_t colon = entry.find(':');
    if (colon == entry.npos)
      return std::nullopt;
    const auto choice = number(entry.substr(0, colon));
    const auto seq = number(entry.substr(colon + 1));
    if (!choice || !seq || *choice >= static_cast<int64_t>(kMaxChoices))
      return std::nullopt;
    if (out.size() <= static_cast<size_t>(*choice))
      out.resize(static_cast<size_t>(*choice) + 1, absent);
    out[static_cast<size_t>(*choice)] = *seq;
  }
  return out;
}

} // namespace

EventId::EventId(const Cursor& cursor) {
  for (const int64_t next : cursor.next)
    last_.push_back(next - 1);
}

void EventId::sent(int32_t choice, int64_t seq) {
  if (last_.size() <= static_cast<size_t>(choice))
    last_.resize(static_cast<size_t>(choice) + 1, -1);
  last_[static_cast<size_t>(choice)] = seq;
}

std::string EventId::text() const {
  std::string out;
  for (size_t choice = 0; choice < last_.size(); ++choice) {
    if (last_[choice] < 0)
      continue;
    if (!out.empty())
      out += ',';
    out += std::to_string(choice) + ':' + std::to_string(last_[choice]);
  }
  if (ended_) {
    if (!out.empty())
      out += ',';
    out += kEnd;
  }
  return out;
}

std::optional<Cursor> cursor_after(std::string_view last_event_id) {
  Cursor cursor;
  cursor.ended = last_event_id == kEnd || last_event_id.ends_with(kAlsoEnd);
  if (last_event_id.empty() || last_event_id == kEnd) // nothing numbered was sent
    return cursor;
  if (cursor.ended)
    last_event_id.remove_suffix(kAlsoEnd.size());
  const auto last = positions(last_event_id, -1);
  if (!last)
    return std::nullopt;
  for (const int64_t seq : *last)
    cursor.next.push_back(seq + 1);
  return cursor;
}

std::optional<Cursor> cursor_from(std::string_view from_seq, size_t choices) {
  Cursor cursor;
  if (const auto every = number(from_seq)) {
    cursor.next.assign(choices, *every);
    return cursor;
  }
  auto next = positions(from_seq, 0);
  if (!next)
    return std::nullopt;
  cursor.next = std::move(*next);
  return cursor;
}

void append_event(std::string& out, std::string_view name, std::string_view id, std::string_view data) {
  if (!id.empty())
    out.append("id: ").append(id) += '\n';
  if (!name.empty())
    out.append("event: ").append(name) += '\n';
  out.append("data: ").append(data) += "\n\n";
}

} // namespace millrace::http
