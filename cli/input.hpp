#pragma once

#include "messages/ids.hpp"

#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// Where a command's text comes from: at most one of both is present.
struct TextSource {
  std::optional<std::string> text; // "-" reads stdin
  std::optional<std::string> file;
};

/// The text, byte for byte; "" if there is no source. Throws UsageError if both are given, std::system_error
/// naming the file if it can't be read, std::runtime_error if there is more than 64 MiB of it.
std::string read_text(const TextSource& source);

/// Ids separated by commas or white space, perhaps in brackets. Throws UsageError naming `flag` and the word
/// that is no id in [0, vocab_size).
std::vector<TokenId> parse_ids(std::string_view text, int32_t vocab_size, std::string_view flag);

} // namespace millrace
