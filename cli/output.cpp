#include "cli/output.hpp"

#include "cli/errors.hpp"
#include "messages/codec.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <system_error>
#include <unistd.h>

namespace millrace {

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0)
      text.remove_prefix(size_t(written));
    else if (errno == EPIPE)
      throw OutputClosed();
    else if (errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "stdout");
  }
}

bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}

std::string quote(std::string_view bytes) {
  const bool is_text = is_valid_utf8(bytes);
  std::string out = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !is_text))
      out += format("\\x%02x", byte);
    else
      out += c;
  }
  return out += '"';
}

std::string format(const char* pattern, ...) {
  std::va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  std::string out(size_t(std::vsnprintf(nullptr, 0, pattern, arguments)), '\0');
  std::vsnprintf(out.data(), out.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return out;
}

} // namespace millrace
