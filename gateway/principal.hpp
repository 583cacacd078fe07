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

} // namespace millrace
