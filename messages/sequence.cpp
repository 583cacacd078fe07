#include "messages/sequence.hpp"

namespace millrace {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
  case FinishReason::none: return "none";
  case FinishReason::stop: return "stop";
  case FinishReason::length: return "length";
  case FinishReason::cancelled: return "cancelled";
  case FinishReason::deadline: return "deadline";
  case FinishReason::error: return "error";
  }
  return "error";
}

} // namespace millrace
