#pragma once

// stdout holds results and nothing else; everything for people's eyes goes to stderr.

#include <string>
#include <string_view>

namespace millrace {

/// Writes to stdout at once. Throws OutputClosed if the reader has gone (SIGPIPE must be ignored),
/// std::system_error on any other failure.
void print(std::string_view text);
inline void print_line(std::string_view text) {
  print(std::string(text) + '\n');
}

bool stdout_is_terminal();
bool stderr_is_terminal();

/// The bytes in double quotes, for people: control characters, quotes and what is not UTF-8 are escaped as in
/// C.
std::string quote(std::string_view bytes);

/// As printf, into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

} // namespace millrace
