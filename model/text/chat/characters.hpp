#pragma once

// Texts as Python sees them: sequences of code points. A byte that belongs to no well-formed character counts
// as one.

#include "model/text/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::jinja {

/// Bytes of the first character; the text may not be empty.
inline size_t character_size(std::string_view text) {
  return std::max<size_t>(1, utf8_character_size(text));
}
size_t count_characters(std::string_view text);
/// Where the character of this index begins, or the text's size.
size_t offset_of(std::string_view text, size_t index);

/// The first character; U+FFFD for an invalid byte.
char32_t decode_character(std::string_view text);
/// Code points that are none (surrogates, above U+10FFFF) become U+FFFD.
void append_character(std::string& text, char32_t character);

/// As Python's str.isspace, isalpha, isdigit, isupper (of one character), islower.
bool is_space(char32_t character);
bool is_letter(char32_t character);
bool is_digit(char32_t character);
bool is_upper(char32_t character);
bool is_lower(char32_t character);

/// Unicode's mappings of one character to one, and "SS" for the sharp s. Python knows some longer ones, and
/// the final sigma.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);

/// Bytes of blanks at the beginning, at the end.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);
/// Bytes of the last character; the text may not be empty.
size_t last_character_size(std::string_view text);

} // namespace millrace::jinja
