#pragma once

// Messages as msgpack maps with named fields. Unknown keys are skipped, so old readers survive new fields;
// wrong types, keys given twice, depth, sizes, invalid UTF-8 and trailing bytes are refused. Nothing is
// allocated beyond what the frame itself holds.

#include "messages/stats.hpp"
#include "messages/stream.hpp"
#include "messages/utf8.hpp"

#include <optional>
#include <tuple>
#include <variant>

namespace millrace {

/// The largest frame that is read or written, in bytes.
inline constexpr size_t kMaxFrameBytes = 8u << 20;

/// Everything that travels alone.
using Messages =
    std::tuple<Generate, Cancel, Replay, Follow, Read, Look, Stats, Prompt, Sequence, SampledToken, Welcome, Started,
               Progress, PromptLogprobs, Token, Finished, Done, Rejected, Heartbeat, Ack, Lagging, Snapshot, ServerStats>;

/// {"type": kType, fields…} as msgpack. Works for every Message; for Event the held alternative.
/// Throws std::length_error above kMaxFrameBytes. Text of the message must be UTF-8, or no reader takes it.
template <Message M> std::string encode(const M& message);
std::string encode(const Event& event);

/// The message of exactly this type, or why not: malformed, or invalid_field with the path of the field, its
/// limit and the kind of what was found. Never throws on any input.
template <Message M> std::variant<M, Failure> decode(std::string_view frame);

/// What a client may send.
using ClientMessage = std::variant<Generate, Cancel, Replay, Follow, Read, Look, Stats>;
std::variant<ClientMessage, Failure> decode_client_message(std::string_view frame);
std::variant<Event, Failure> decode_event(std::string_view frame);

/// The frame's "type" and "request", as far as they can be read: to address the refusal of a frame that does
/// not decode.
struct Envelope {
  std::optional<std::string> type;
  std::optional<StreamId> request;
  MILLRACE_FIELDS(type, request)
};
Envelope read_envelope(std::string_view frame);

} // namespace millrace
