#pragma once

// Messages as msgpack maps with named fields. Unknown keys are skipped, so old readers survive new fields; wrong types, depth,
// sizes, invalid UTF-8 and trailing bytes are refused. Nothing is allocated beyond what the frame itself holds.

#include "messages/stream.hpp"

#include <span>
#include <variant>

namespace millrace {

/// The largest frame that is read or written, in bytes.
inline constexpr size_t kMaxFrameBytes = 8u << 20;

/// {"type": kType, fields…} as msgpack. Works for every Message; for Event the held alternative.
template <Message M> std::string encode(const M& message);
std::string encode(const Event& event);

/// The message of exactly this type, or why not (malformed or invalid_field, with the field's name).
template <Message M> std::variant<M, Failure> decode(std::string_view frame);

/// What a client may send.
using ClientMessage = std::variant<Generate, Cancel, Replay>;
std::variant<ClientMessage, Failure> decode_client_message(std::string_view frame);
std::variant<Event, Failure> decode_event(std::string_view frame);

bool is_valid_utf8(std::string_view text);

} // namespace millrace
