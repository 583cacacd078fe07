#pragma once

// GPT-2's spelling of bytes: each of the 256 is one printable character, so that a vocabulary of byte strings
// can be kept as text. Bytes that are printable in Latin-1 stand for themselves; the other 68 are U+0100,
// U+0101, … in order.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

/// UTF-8 of the character that spells the byte; one or two bytes.
std::string_view spell_byte(uint8_t byte);

/// The bytes that a piece spells; nullopt if any of its characters is not of the alphabet.
std::optional<std::string> unspell_bytes(std::string_view piece);

} // namespace millrace
