#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

/// What a client may be told. Everything else is a bug or a broken world. The names are on the wire.
enum class Error : uint8_t {
  none = 0,
  malformed,         // the frame is not a message of the protocol
  invalid_field,     // a field is missing, of the wrong type or out of its range
  prompt_too_long,   // prompt and one token do not fit the context
  busy,              // the queue is full or too slow; try again after Rejected::retry_after_ms
  conflict,          // the stream id is in use
  unknown_request,   // no such stream, or its log is gone
  unsupported,       // the model or the build cannot do this
  draining,          // the server is stopping
  non_finite_logits, // the model's output is not a number
  device_lost,       // the device died and nobody could go on
  internal,          // our bug
};
std::string_view to_string(Error);

/// A refusal: which field broke which limit. `message` never holds text of the client.
struct Failure {
  Error code = Error::none;
  std::string field;   // "sampling.top_p"; empty where no single field is to blame
  std::string message; // names the limit and the kind of the value
  int32_t retry_after_ms = 0; // with busy: when to try again; 0: unknown
};

} // namespace millrace
