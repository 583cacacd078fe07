#pragma once

#include <string>

namespace millrace {

/// Who speaks to a door. On a door without keys everybody is the same nobody; a stream belongs to who opened it.
struct Principal {
  /// "" (nobody in particular), "curve:" and the client's public key in Z85, or "http:" and the name of an API
  /// key (never the key).
  std::string name;
  auto operator<=>(const Principal&) const = default;
};

/// Where a request came in, for the log.
struct Origin {
  std::string door;       // "zmq" or "http"
  std::string request_id; // what the client calls its request (X-Request-Id), as it came; may be empty
};

} // namespace millrace
