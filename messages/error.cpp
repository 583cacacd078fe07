#include "messages/error.hpp"

namespace millrace {

std::string_view to_string(Error error) {
  switch (error) {
  case Error::none: return "none";
  case Error::malformed: return "malformed";
  case Error::invalid_field: return "invalid_field";
  case Error::prompt_too_long: return "prompt_too_long";
  case Error::busy: return "busy";
  case Error::conflict: return "conflict";
  case Error::unknown_request: return "unknown_request";
  case Error::unsupported: return "unsupported";
  case Error::draining: return "draining";
  case Error::non_finite_logits: return "non_finite_logits";
  case Error::device_lost: return "device_lost";
  case Error::internal: return "internal";
  }
  return "internal"; // a value outside the enumeration is our bug, too
}

} // namespace millrace
