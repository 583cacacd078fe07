#include "gateway/stream_log.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace millrace {
namespace {

// Charged on top of the bytes of a frame and of a stream, so that many tiny ones are bounded, too: a
// message_t, its allocation, and what table, lists and the first chunks of the deques take.
constexpr size_t kFrameOverhead = 128;
constexpr size_t kStreamOverhead = 1'024;
constexpr size_t kChoiceOverhead = 768;
// A stream that has to make room for others gives this part of itself at once, since finding it takes long.
constexpr size_t kPartToGive = 16;

zmq::message_t share(zmq::message_t& frame) {
  zmq::message_t reference;
  reference.copy(frame);
  return reference;
}

/// Whether one more event goes into a piece; the first one always does.
bool take(size_t& budget, size_t bytes, const StreamLog::Piece& piece) {
  if (bytes > budget && !piece.events.empty())
    return false;
  budget -= std::min(budget, bytes);
  return true;
}

} // namespace

void advance(Cursor& cursor, const LoggedEvent& event) {
  if (event.last) {
    cursor.ended = true;
  } else if (event.seq >= 0) {
    const size_t choice = event.sequence.choice;
    cursor.next.resize(std::max(cursor.next.size(), choice + 1));
    cursor.next[choice] = event.seq + 1;
  } else {
    cursor.preamble = std::max(cursor.preamble, event.place);
  }
}

bool StreamLog::open(const StreamId& request, int32_t choices, Time now, size_t overhead) {
  assert(choices > 0);
  const size_t bookkeeping = kStreamOverhead + choices * kChoiceOverhead + overhead;
  if (streams_.contains(request) || live_bookkeeping_ + bookkeeping > limits_.total_bytes)
    return false;
  std::vector<Choice> empty(choices); // before anything is changed, since it may throw
  Stream& stream = streams_[request];
  stream.choices = std::move(empty);
  stream.touched = now;
  stream.place = live_.insert(live_.end(), request);
  stream.bookkeeping = bookkeeping;
  live_bookkeeping_ += bookkeeping;
  charge(stream, bookkeeping);
  make_room();
  return true;
}

void StreamLog::remove(const StreamId& request) {
  const auto entry = streams_.find(request);
  if (entry == streams_.end())
    return;
  bytes_ -= entry->second.bytes;
  if (!entry->second.last)
    live_bookkeeping_ -= entry->second.bookkeeping;
  (entry->second.last ? ended_ : live_).erase(entry->second.place);
  streams_.erase(entry);
}

StreamLog::Verdict StreamLog::admit(const SequenceId& sequence, Time now) {
  return find(sequence, now).verdict;
}

StreamLog::Verdict StreamLog::start(const SequenceId& sequence, zmq::message_t frame, Time now) {
  const Found found = find(sequence, now);
  if (!found.stream)
    return found.verdict;
  Stream& stream = *found.stream;
  const auto earlier = std::find_if(stream.preamble.begin(), stream.preamble.end(), [&](const Preamble& p) {
    return p.started && p.sequence.choice == sequence.choice;
  });
  if (earlier != stream.preamble.end()) {
    release(stream, earlier->body.size() + kFrameOverhead);
    stream.preamble.erase(earlier);
  }
  charge(stream, frame.size() + kFrameOverhead);
  stream.preamble.push_back({stream.next_place++, sequence, true, std::move(frame)});
  fit(stream);
  return Verdict::taken;
}

StreamLog::Verdict StreamLog::keep(const SequenceId& sequence, zmq::message_t frame, Time now) {
  const Found found = find(sequence, now);
  if (!found.stream)
    return found.verdict;
  Stream& stream = *found.stream;
  charge(stream, frame.size() + kFrameOverhead);
  stream.preamble.push_back({stream.next_place++, sequence, false, std::move(frame)});
  stream.arrivals.push_back(kPrompt);
  fit(stream);
  return Verdict::taken;
}

StreamLog::Verdict StreamLog::append(const SequenceId& sequence, int64_t seq, bool last,
                                     zmq::message_t&& frame, Time now) {
  const Found found = find(sequence, now);
  if (!found.stream)
    return found.verdict;
  Choice& choice = *found.choice;
  if (choice.closed || seq != choice.next())
    return Verdict::out_of_order;

  charge(*found.stream, frame.size() + kFrameOverhead);
  choice.frames.push_back({std::move(frame), sequence.epoch});
  choice.closed = last;
  found.stream->arrivals.push_back(sequence.choice);
  fit(*found.stream);
  return Verdict::taken;
}

StreamLog::Verdict StreamLog::end(const StreamId& request, zmq::message_t frame, Time now) {
  const auto entry = streams_.find(request);
  if (entry == streams_.end() || entry->second.last)
    return Verdict::unknown_stream;
  Stream& stream = entry->second;
  charge(stream, frame.size() + kFrameOverhead);
  stream.last = std::move(frame);
  stream.touched = now;
  live_bookkeeping_ -= stream.bookkeeping;
  ended_.splice(ended_.end(), live_, stream.place);
  make_room();
  return Verdict::taken;
}

void StreamLog::expire(Time now) {
  while (!ended_.empty()) {
    const auto oldest = streams_.find(ended_.front());
    if (now - oldest->second.touched < limits_.ttl)
      return;
    erase(oldest);
  }
}

bool StreamLog::live(const StreamId& request) const {
  const auto entry = streams_.find(request);
  return entry != streams_.end() && !entry->second.last;
}

std::vector<int64_t> StreamLog::next_seqs(const StreamId& request) const {
  std::vector<int64_t> seqs;
  if (const auto entry = streams_.find(request); entry != streams_.end())
    for (const Choice& choice : entry->second.choices)
      seqs.push_back(choice.next());
  return seqs;
}

std::optional<StreamLog::Range> StreamLog::held(const StreamId& request, int32_t choice) const {
  const auto entry = streams_.find(request);
  if (entry == streams_.end() || choice < 0 || std::cmp_greater_equal(choice, entry->second.choices.size()))
    return std::nullopt;
  const Choice& found = entry->second.choices[choice];
  return Range{found.first, found.next()};
}

std::vector<StreamId> StreamLog::idle(Time now, std::chrono::milliseconds silence) {
  std::vector<StreamId> found;
  while (found.size() < live_.size()) {
    Stream& stream = streams_.find(live_.front())->second;
    if (now - stream.touched < silence)
      break;
    found.push_back(live_.front());
    stream.touched = now;
    live_.splice(live_.end(), live_, stream.place);
  }
  return found;
}

// ---- reading ----

StreamLog::Piece StreamLog::read(const StreamId& request, Cursor& cursor, size_t max_bytes) {
  Piece piece;
  const auto entry = streams_.find(request);
  if (entry == streams_.end())
    return piece;
  Stream& stream = entry->second;
  piece.known = true;
  cursor.next.resize(stream.choices.size());
  if (cursor.live_from.empty())
    for (const Choice& choice : stream.choices)
      cursor.live_from.push_back(choice.next());

  size_t budget = max_bytes;
  read_preamble(stream, cursor, budget, piece);
  if (!piece.more)
    read_numbered(stream, cursor, budget, piece);
  if (!piece.more && stream.last && !std::exchange(cursor.ended, true))
    piece.events.push_back({.sequence = {.request = request}, .last = true, .body = share(*stream.last)});
  for (LoggedEvent& event : piece.events)
    event.sequence.request = request;
  return piece;
}

void StreamLog::read_preamble(Stream& stream, Cursor& cursor, size_t& budget, Piece& piece) {
  if (cursor.preamble >= stream.next_place)
    return;
  for (Preamble& event : stream.preamble) {
    if (event.place < cursor.preamble)
      continue;
    if (!take(budget, event.body.size(), piece)) {
      piece.more = true;
      return;
    }
    cursor.preamble = event.place + 1;
    piece.events.push_back({.sequence = event.sequence, .place = cursor.preamble, .body = share(event.body)});
  }
}

/// The choice whose reader has come the least far gives the next event. One lag ends up in the piece; a
/// choice with another has to wait for the next piece.
void StreamLog::read_numbered(Stream& stream, Cursor& cursor, size_t& budget, Piece& piece) {
  std::vector<bool> waits(stream.choices.size());
  for (size_t i = 0; i < stream.choices.size(); ++i) {
    int64_t& next = cursor.next[i];
    next = std::max<int64_t>(next, 0);
    const int64_t first = stream.choices[i].first;
    if (next >= first)
      continue;
    if (piece.lag) {
      waits[i] = piece.more = true;
      continue;
    }
    piece.lag = Lag{static_cast<int32_t>(i), next, first};
    next = first;
  }
  for (;;) {
    size_t chosen = stream.choices.size();
    for (size_t i = 0; i < stream.choices.size(); ++i)
      if (!waits[i] && cursor.next[i] < stream.choices[i].next() &&
          (chosen == stream.choices.size() || cursor.next[i] < cursor.next[chosen]))
        chosen = i;
    if (chosen == stream.choices.size())
      return;
    Choice& choice = stream.choices[chosen];
    int64_t& seq = cursor.next[chosen];
    Frame& frame = choice.frames[seq - choice.first];
    if (!take(budget, frame.body.size(), piece)) {
      piece.more = true;
      return;
    }
    piece.again += seq < cursor.live_from[chosen];
    piece.events.push_back(
        {.sequence = {{}, static_cast<int32_t>(chosen), frame.epoch}, .seq = seq, .body = share(frame.body)});
    ++seq;
  }
}

// ---- bookkeeping ----

/// Touches the stream if it is the owner's.
StreamLog::Found StreamLog::find(const SequenceId& sequence, Time now) {
  const auto entry = streams_.find(sequence.request);
  if (entry == streams_.end() || entry->second.last || sequence.choice < 0 ||
      std::cmp_greater_equal(sequence.choice, entry->second.choices.size()))
    return {Verdict::unknown_stream};
  Stream& stream = entry->second;
  Choice& choice = stream.choices[sequence.choice];
  if (sequence.epoch < choice.epoch)
    return {Verdict::stale_epoch};
  choice.epoch = sequence.epoch;
  stream.touched = now;
  live_.splice(live_.end(), live_, stream.place);
  return {Verdict::taken, &stream, &choice};
}

void StreamLog::charge(Stream& stream, size_t bytes) {
  stream.bytes += bytes;
  bytes_ += bytes;
}

void StreamLog::release(Stream& stream, size_t bytes) {
  stream.bytes -= bytes;
  bytes_ -= bytes;
}

void StreamLog::drop_oldest(Stream& stream) {
  if (stream.arrivals.front() == kPrompt) {
    const auto oldest = std::find_if(stream.preamble.begin(), stream.preamble.end(),
                                     [](const Preamble& event) { return !event.started; });
    release(stream, oldest->body.size() + kFrameOverhead);
    stream.preamble.erase(oldest);
  } else {
    Choice& choice = stream.choices[stream.arrivals.front()];
    release(stream, choice.frames.front().body.size() + kFrameOverhead);
    choice.frames.pop_front();
    ++choice.first;
  }
  stream.arrivals.pop_front();
}

/// Brings a stream that has grown below its cap, and the log below its own.
void StreamLog::fit(Stream& stream) {
  while (stream.bytes > limits_.stream_bytes && !stream.arrivals.empty())
    drop_oldest(stream);
  make_room();
}

void StreamLog::erase(Streams::iterator entry) {
  const StreamId request = entry->first;
  remove(request);
  if (erased_)
    erased_(request);
}

/// Ended streams go before events of live ones, and among these the largest gives first.
void StreamLog::make_room() {
  while (bytes_ > limits_.total_bytes && !ended_.empty())
    erase(streams_.find(ended_.front()));
  while (bytes_ > limits_.total_bytes) {
    const auto bytes_to_give = [](const auto& entry) {
      return entry.second.arrivals.empty() ? 0 : entry.second.bytes;
    };
    const auto largest =
        std::max_element(streams_.begin(), streams_.end(),
                         [&](const auto& a, const auto& b) { return bytes_to_give(a) < bytes_to_give(b); });
    if (largest == streams_.end() || largest->second.arrivals.empty())
      return; // only bookkeeping of live streams is left, which open() bounds, and what they began with
    Stream& stream = largest->second;
    const size_t enough = stream.bytes - stream.bytes / kPartToGive;
    do
      drop_oldest(stream);
    while (stream.bytes > enough && !stream.arrivals.empty());
  }
}

} // namespace millrace
