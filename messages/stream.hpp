#pragma once

// What the gateway publishes: the events of a stream. Token and Finished are numbered, per choice, by seq.

#include "messages/error.hpp"
#include "messages/sequence.hpp"

#include <variant>

namespace millrace {

inline constexpr uint32_t kProtocolVersion = 1;

/// To a subscriber, when its subscription is in force. Wait for it before you send Generate.
struct Welcome {
  static constexpr std::string_view kType = "welcome";
  StreamId request;
  uint32_t version = kProtocolVersion;
  bool live = false;             // a stream with this id exists
  std::vector<int64_t> next_seq; // of each choice: what comes next live; earlier ones by Replay
  MILLRACE_FIELDS(request, version, live, next_seq)
};

/// The request runs.
struct Started {
  static constexpr std::string_view kType = "started";
  StreamId request;
  int32_t choice = 0;
  uint32_t epoch = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0; // of the prompt, taken from the prefix cache
  uint64_t seed = 0;
  MILLRACE_FIELDS(request, choice, epoch, prompt_tokens, cached_tokens, seed)
};

/// A chunk of the prompt has been read.
struct Progress {
  static constexpr std::string_view kType = "progress";
  StreamId request;
  int32_t choice = 0;
  uint32_t epoch = 0;
  int32_t processed = 0; // prompt tokens so far
  int32_t total = 0;
  MILLRACE_FIELDS(request, choice, epoch, processed, total)
};

/// A token of the prompt and its log-prob given all before it.
struct PromptToken {
  TokenId id = 0;
  Bytes bytes;
  std::optional<float> logprob; // nil for the first one: nothing precedes it
  std::vector<TokenLogprob> top;
  MILLRACE_FIELDS(id, bytes, logprob, top)
};

/// The log-probs of a piece of the prompt, which its log keeps as it does numbered events. Of choice 0 only,
/// since all choices have the same prompt; pieces come in order and each position once.
struct PromptLogprobs {
  static constexpr std::string_view kType = "prompt_logprobs";
  StreamId request;
  int32_t choice = 0;
  uint32_t epoch = 0;
  int32_t position = 0; // of the first token
  std::vector<PromptToken> tokens;
  MILLRACE_FIELDS(request, choice, epoch, position, tokens)
};

/// One generated token. The texts of a choice, joined by seq, are its whole text.
struct Token {
  static constexpr std::string_view kType = "token";
  StreamId request;
  int32_t choice = 0;
  uint32_t epoch = 0;
  int64_t seq = 0;
  TokenId id = 0;
  Bytes bytes;      // its own, cut where a stop string begins
  std::string text; // whole characters only
  float logprob = 0;
  std::vector<TokenLogprob> top;
  MILLRACE_FIELDS(request, choice, epoch, seq, id, bytes, text, logprob, top)
};

/// A choice has ended; the last numbered event of the choice.
struct Finished {
  static constexpr std::string_view kType = "finished";
  StreamId request;
  int32_t choice = 0;
  uint32_t epoch = 0;
  int64_t seq = 0;    // equals the number of its tokens
  std::string reason; // FinishReason
  std::string text;   // characters held back until now; invalid bytes as U+FFFD
  std::string error;  // Error, if reason is "error"
  MILLRACE_FIELDS(request, choice, epoch, seq, reason, text, error)
};

/// The request has ended: its last event.
struct Done {
  static constexpr std::string_view kType = "done";
  StreamId request;
  int32_t prompt_tokens = 0;
  int32_t generated_tokens = 0; // over all choices
  double queue_ms = 0;          // from admission to the first prefill pass
  double prefill_ms = 0;        // from there to the first token
  double decode_ms = 0;         // from there to the end
  MILLRACE_FIELDS(request, prompt_tokens, generated_tokens, queue_ms, prefill_ms, decode_ms)
};

/// The request was not admitted: its only event.
struct Rejected {
  static constexpr std::string_view kType = "rejected";
  StreamId request;
  std::string error; // Error
  std::string field;
  std::string message;
  int32_t retry_after_ms = 0; // with "busy"
  MILLRACE_FIELDS(request, error, field, message, retry_after_ms)
};

/// On the topic of a stream without other events for a while.
struct Heartbeat {
  static constexpr std::string_view kType = "heartbeat";
  StreamId request;
  std::vector<int64_t> next_seq; // of each choice; a larger one than you wait for is a gap
  MILLRACE_FIELDS(request, next_seq)
};

/// gateway -> client on ROUTER: Generate, Cancel, Replay or Follow was understood. A Generate is then answered
/// by events on the stream's topic; a Replay by its events on ROUTER, before this; a Follow by its events on
/// ROUTER, after this.
struct Ack {
  static constexpr std::string_view kType = "ack";
  StreamId request;     // of a Generate that joined an earlier one: the stream of that
  std::string of;       // type of the acknowledged message
  bool joined = false;  // Generate: the same request was made before; this is its stream
  int64_t from_seq = 0; // Replay: the first and the next seq of what was sent
  int64_t next_seq = 0;
  MILLRACE_FIELDS(request, of, joined, from_seq, next_seq)
};

/// gateway -> client on ROUTER: what a Follow would bring next has left the log, since its reader is too slow.
/// It goes on at the oldest event that is held.
struct Lagging {
  static constexpr std::string_view kType = "lagging";
  StreamId request;
  int32_t choice = 0;
  int64_t wanted_seq = 0;
  int64_t held_seq = 0; // the next one that comes
  MILLRACE_FIELDS(request, choice, wanted_seq, held_seq)
};

/// Where a choice stands.
struct ChoiceSnapshot {
  int64_t first_seq = 0; // the text begins with this event: 0 while the log holds all
  int64_t next_seq = 0;  // the next one to come
  std::string text;      // of the events between
  std::string reason;    // FinishReason, once it has ended
  MILLRACE_FIELDS(first_seq, next_seq, text, reason)
};

/// gateway -> client on ROUTER: the answer to Look. Take it, then follow from each choice's next_seq.
struct Snapshot {
  static constexpr std::string_view kType = "snapshot";
  StreamId request;
  bool live = false;
  int32_t prompt_tokens = 0; // 0 until it is known
  std::vector<ChoiceSnapshot> choices;
  MILLRACE_FIELDS(request, live, prompt_tokens, choices)
};

/// What a pipeline says about a request, in order.
using Event = std::variant<Started, Progress, PromptLogprobs, Token, Finished, Done, Rejected>;

} // namespace millrace
