#include "gateway/stream_text.hpp"

#include "messages/codec.hpp"
#include "messages/msgpack_reader.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {
namespace {

/// What is taken from an event.
struct Spoken {
  std::string text, reason;
  MILLRACE_FIELDS(text, reason)
};

} // namespace

// ---- of one stream ----

void StreamText::take(const StreamLog::Piece& piece) {
  if (piece.lag) {
    drop_before(static_cast<size_t>(piece.lag->choice), piece.lag->wanted);
    choices_[static_cast<size_t>(piece.lag->choice)].first = piece.lag->held;
  }
  for (const LoggedEvent& event : piece.events) {
    if (event.seq < 0)
      continue;
    Choice& choice = choices_[static_cast<size_t>(event.sequence.choice)];
    assert(event.seq == choice.next());
    Spoken said;
    read_msgpack(event.body.to_string_view(), slot_of(said));
    choice.text += said.text;
    choice.sizes.push_back(static_cast<uint32_t>(said.text.size()));
    choice.reason = std::move(said.reason);
    length_ += said.text.size();
    fit();
  }
}

bool StreamText::behind(const std::vector<int64_t>& ends) const {
  for (size_t i = 0; i < choices_.size() && i < ends.size(); ++i)
    if (choices_[i].next() < ends[i])
      return true;
  return false;
}

void StreamText::drop_before(size_t choice, int64_t seq) {
  while (choices_[choice].first < seq && !choices_[choice].sizes.empty())
    drop_oldest(choices_[choice]);
}

void StreamText::drop_oldest(Choice& choice) {
  const size_t size = choice.sizes.front();
  choice.sizes.pop_front();
  ++choice.first;
  choice.begin += size;
  length_ -= size;
  if (choice.begin > choice.text.size() / 2) { // moved less often than it was written
    choice.text.erase(0, choice.begin);
    choice.begin = 0;
  }
}

void StreamText::fit() {
  while (length_ > max_bytes_) {
    const auto longest = std::max_element(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
      return a.length() < b.length();
    });
    drop_oldest(*longest);
  }
}

std::vector<ChoiceSnapshot> StreamText::choices() const {
  std::vector<ChoiceSnapshot> told(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    told[i].first_seq = choice.first;
    told[i].next_seq = choice.next();
    told[i].text = choice.text.substr(choice.begin);
    told[i].reason = choice.reason;
  }
  return told;
}

size_t StreamText::bytes() const {
  size_t bytes = sizeof *this + 256; // and where it is kept
  for (const Choice& choice : choices_)
    bytes += sizeof choice + 640 + choice.text.capacity() + choice.sizes.size() * sizeof(uint32_t);
  return bytes;
}

// ---- of many ----

std::optional<StreamText> StreamTexts::take(const StreamId& stream) {
  const auto place = places_.find(stream);
  if (place == places_.end())
    return std::nullopt;
  StreamText text = std::move(place->second->second);
  bytes_ -= text.bytes();
  latest_.erase(place->second);
  places_.erase(place);
  return text;
}

void StreamTexts::put(const StreamId& stream, StreamText text) {
  forget(stream);
  bytes_ += text.bytes();
  latest_.emplace_front(stream, std::move(text));
  places_.emplace(stream, latest_.begin());
  while (bytes_ > max_bytes_) {
    const StreamId oldest = latest_.back().first;
    forget(oldest);
  }
}

} // namespace millrace
