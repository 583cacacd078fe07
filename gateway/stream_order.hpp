#pragma once

// The order of a stream, whichever way its events come: in order, with gaps, twice, over two sockets. What a
// client of the protocol must do about it, without sockets and clocks.

#include "messages/stream.hpp"

#include <deque>
#include <map>
#include <optional>
#include <variant>
#include <vector>

namespace millrace {

/// What a reader is told, in order for each choice. Lagging: the events between its numbers are gone for
/// good. Done or Rejected is the last one.
using StreamEvent = std::variant<Started, Progress, PromptLogprobs, Token, Finished, Done, Rejected, Lagging>;

class StreamOrder {
public:
  /// next: where to begin, of each choice. At most `room` events wait for the reader: what comes beyond that
  /// is left to the stream's log, and missing() asks for it later.
  StreamOrder(const StreamId& stream, std::vector<int64_t> next, size_t room);

  /// An event of the stream.
  void take(Event event);
  /// What welcome and heartbeat tell, where the choices stand: how many there are and what has been sent.
  void told(const std::vector<int64_t>& next_seq);
  /// A replay of the choice has ended; it began and ended there.
  void replayed(int32_t choice, int64_t from_seq, int64_t next_seq);
  /// The server said so itself: it goes on at held_seq.
  void skip(const Lagging& lagging);

  struct Missing {
    int32_t choice = 0;
    int64_t seq = 0;
  };
  /// What to ask a replay for; nullopt while there is nothing missing, or no room for it.
  std::optional<Missing> missing() const;

  /// The next event for the reader.
  std::optional<StreamEvent> pop();
  /// Whether the last event was handed out.
  bool ended() const { return ended_ && ready_.empty(); }
  /// Whether the last event has come, and nothing more is to be asked for.
  bool complete() const { return ended_; }
  /// The next seq of each choice.
  std::vector<int64_t> next() const;

private:
  struct Choice {
    int64_t next = 0;
    int64_t told = 0; // what was sent reaches at least to here
    bool closed = false;
    std::map<int64_t, StreamEvent> ahead; // behind a gap
  };

  Choice* choice(int32_t number);
  void number(Choice& choice, int64_t seq, StreamEvent event);
  void go_on(Choice& choice);
  void hand_out(Choice& choice, StreamEvent event);
  void lose(int32_t number, Choice& choice, int64_t held);
  void settle();

  StreamId stream_;
  size_t room_;
  std::vector<Choice> choices_;
  std::deque<StreamEvent> ready_;
  std::optional<Done> done_; // waits for the choices
  bool ended_ = false;
};

} // namespace millrace
