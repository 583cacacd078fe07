#pragma once

// Who may come in: a file with one public key (Z85) a line, each perhaps followed by a name; lines that begin
// with
// "# " or are empty say nothing. It is looked at again at each handshake and read again when it has changed,
// so that an added key works at once and a removed one never connects again (what is connected stays so). A
// list that can't be read, or of which one line is none of that, lets nobody in.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <variant>

namespace millrace {

/// The keys of a list, or what is wrong with it ("line 3: ...").
using CurveKeys = std::set<std::string, std::less<>>;
std::variant<CurveKeys, std::string> parse_curve_keys(std::string_view text);

/// Belongs to one thread.
class CurveAllowList {
public:
  /// Throws std::system_error (it can't be read, or others may write it) or std::runtime_error (it holds no
  /// key, or a line that is none), both naming the file.
  explicit CurveAllowList(std::filesystem::path file);

  /// Whether the file as it is now has the key. Never throws: what goes wrong is told on stderr once.
  bool allows(std::string_view public_key);

private:
  /// What changes whenever the file's contents do.
  struct Stamp {
    uint64_t device = 0, inode = 0, size = 0;
    int64_t seconds = -1, nanoseconds = 0;
    int64_t change_seconds = 0, change_nanoseconds = 0; // also for a time that was set back
    bool operator==(const Stamp&) const = default;
  };
  Stamp stamp() const;
  CurveKeys read() const;

  const std::filesystem::path file_;
  Stamp stamp_; // of what keys_ was read from
  CurveKeys keys_;
};

} // namespace millrace
