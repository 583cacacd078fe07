#include "cli/terminal_text.hpp"

#include "cli/output.hpp"

namespace millrace {

std::string for_terminal(std::string_view utf8) {
  std::string out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    const auto next = i + 1 < utf8.size() ? static_cast<unsigned char>(utf8[i + 1]) : 0;
    if (byte == '\n' || byte == '\t') {
      out += utf8[i];
    } else if (byte < 0x20 || byte == 0x7f) {
      out += '^';
      out += char(byte ^ 0x40);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) { // U+0080 … U+009F
      out += format("\\x%02x", next);
      ++i;
    } else {
      out += utf8[i];
    }
  }
  return out;
}

} // namespace millrace
