#include "gateway/stream_log.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace millrace {
namespace {

// Charged on top of the bytes of a frame and of a stream, so that many tiny ones are bounded, too: a
// message_t, its allocation, and what map, lists and the first chunks of the deques take.
constexpr size_t kFrameOverhead = 128;
constexpr size_t kStreamOverhead = 1'024;
constexpr size_t kChoiceOverhead = 768;

zmq::message_t share(zmq::message_t& frame) {
  zmq::message_t reference;
  reference.copy(frame);
  return reference;
}

} // namespace

bool StreamLog::open(const StreamId& request, int32_t choices, Time now) {
  assert(choices > 0);
  if (streams_.contains(request))
    return false;
  std::vector<Choice> empty(choices); // before anything is changed, since it may throw
  Stream& stream = streams_[request];
  stream.choices = std::move(empty);
  stream.touched = now;
  stream.place = live_.insert(live_.end(), request);
  charge(stream, kStreamOverhead + choices * kChoiceOverhead);
  make_room();
  return true;
}

StreamLog::Verdict StreamLog::admit(const SequenceId& sequence, Time now) {
  Verdict verdict;
  if (find_choice(sequence, verdict))
    touch(streams_.find(sequence.request)->second, now);
  return verdict;
}

StreamLog::Verdict StreamLog::append(const SequenceId& sequence, int64_t seq, bool last, zmq::message_t frame,
                                     Time now) {
  Verdict verdict;
  Choice* choice = find_choice(sequence, verdict);
  if (!choice)
    return verdict;
  if (choice->closed || seq != choice->next())
    return Verdict::out_of_order;

  Stream& stream = streams_.find(sequence.request)->second;
  touch(stream, now);
  charge(stream, frame.size() + kFrameOverhead);
  choice->frames.push_back(std::move(frame));
  choice->closed = last;
  stream.arrivals.push_back(sequence.choice);
  while (stream.bytes > limits_.stream_bytes && !stream.arrivals.empty())
    drop_oldest(stream);
  make_room();
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

zmq::message_t StreamLog::event(const StreamId& request, int32_t choice, int64_t seq) {
  Choice& found = streams_.at(request).choices.at(choice);
  return share(found.frames.at(seq - found.first));
}

std::optional<zmq::message_t> StreamLog::last_event(const StreamId& request) {
  const auto entry = streams_.find(request);
  if (entry == streams_.end() || !entry->second.last)
    return std::nullopt;
  return share(*entry->second.last);
}

std::vector<StreamId> StreamLog::idle(Time now, std::chrono::milliseconds silence) {
  std::vector<StreamId> found;
  while (found.size() < live_.size()) {
    Stream& stream = streams_.find(live_.front())->second;
    if (now - stream.touched < silence)
      break;
    found.push_back(live_.front());
    touch(stream, now);
  }
  return found;
}

StreamLog::Choice* StreamLog::find_choice(const SequenceId& sequence, Verdict& verdict) {
  const auto entry = streams_.find(sequence.request);
  if (entry == streams_.end() || entry->second.last || sequence.choice < 0 ||
      std::cmp_greater_equal(sequence.choice, entry->second.choices.size())) {
    verdict = Verdict::unknown_stream;
    return nullptr;
  }
  Choice& choice = entry->second.choices[sequence.choice];
  if (sequence.epoch < choice.epoch) {
    verdict = Verdict::stale_epoch;
    return nullptr;
  }
  choice.epoch = sequence.epoch;
  verdict = Verdict::taken;
  return &choice;
}

void StreamLog::touch(Stream& stream, Time now) {
  stream.touched = now;
  live_.splice(live_.end(), live_, stream.place);
}

void StreamLog::charge(Stream& stream, size_t bytes) {
  stream.bytes += bytes;
  bytes_ += bytes;
}

void StreamLog::drop_oldest(Stream& stream) {
  Choice& choice = stream.choices[stream.arrivals.front()];
  const size_t freed = choice.frames.front().size() + kFrameOverhead;
  choice.frames.pop_front();
  ++choice.first;
  stream.arrivals.pop_front();
  stream.bytes -= freed;
  bytes_ -= freed;
}

void StreamLog::erase(Streams::iterator entry) {
  bytes_ -= entry->second.bytes;
  (entry->second.last ? ended_ : live_).erase(entry->second.place);
  streams_.erase(entry);
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
      return; // only bookkeeping of live streams is left; admission bounds their number
    drop_oldest(largest->second);
  }
}

} // namespace millrace
