#pragma once

#include <cstddef>
#include <string_view>

namespace millrace {

/// Bytes of the character that text begins with, 1 to 4; 0 where it is empty or does not begin with a
/// well-formed one (Unicode Standard, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
inline size_t utf8_character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i, unsigned char low = 0x80, unsigned char high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  if (text.empty())
    return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80)
    return 1;
  if (lead >= 0xC2 && lead <= 0xDF)
    return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool second = lead == 0xE0   ? continues(1, 0xA0)
                        : lead == 0xED ? continues(1, 0x80, 0x9F)
                                       : continues(1);
    return second && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = lead == 0xF0   ? continues(1, 0x90)
                        : lead == 0xF4 ? continues(1, 0x80, 0x8F)
                                       : continues(1);
    return second && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

} // namespace millrace
