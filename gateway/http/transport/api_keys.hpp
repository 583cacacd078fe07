#pragma once

#include "gateway/principal.hpp"

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::http {

/// The keys that a server knows. Only their digests are kept.
class ApiKeys {
public:
  static constexpr size_t kMinKeyBytes = 16;
  static constexpr size_t kMaxNameBytes = 59; // "http:" and a name are a tenant, which has 64 bytes at most

  /// One key a line, perhaps with a name before it: "name key". Empty lines and lines that begin with '#' are
  /// skipped. A name may stand before several keys, e.g. while they are changed; a key without one is called
  /// by the first digits of its digest. Throws std::invalid_argument that tells the line (never the key) if
  /// it is malformed, and if there is none.
  static ApiKeys parse(std::string_view text);

  /// Throws std::system_error naming the path if the file can't be read or anyone but its owner may; else as
  /// parse().
  static ApiKeys load(const std::filesystem::path& path);

  /// Whose key it is: "http:" and the name. The time does not tell how much of a key was right.
  std::optional<Principal> find(std::string_view key) const;

private:
  using Digest = std::array<unsigned char, 32>; // SHA-256
  struct Entry {
    Digest digest;
    std::string name;
  };
  static Digest digest(std::string_view key);

  std::vector<Entry> entries_;
};

} // namespace millrace::http
