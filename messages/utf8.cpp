#include "messages/utf8.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {

bool is_valid_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = p + text.size();
  while (p != end) {
    // Most text is ASCII: eight bytes at a time.
    uint64_t word;
    while (end - p >= 8 && (std::memcpy(&word, p, 8), (word & 0x8080808080808080u) == 0))
      p += 8;
    if (p == end)
      break;

    const unsigned char lead = *p++;
    if (lead < 0x80)
      continue;
    if (lead < 0xC2 || lead > 0xF4)
      return false;
    // Only the second byte has a range of its own; it keeps out overlong forms, surrogates and what is above
    // U+10FFFF.
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    const ptrdiff_t continuation = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (end - p < continuation || p[0] < low || p[0] > high)
      return false;
    for (ptrdiff_t i = 1; i < continuation; ++i)
      if ((p[i] & 0xC0) != 0x80)
        return false;
    p += continuation;
  }
  return true;
}

bool has_control_characters(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7F)
      return true;
    // U+0080 … U+009F; what follows this lead is a continuation, since the text is well-formed.
    if (byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0)
      return true;
  }
  return false;
}

} // namespace millrace
