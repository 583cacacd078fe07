#include "model/text/chat/characters.hpp"

#include <utf8proc.h>

namespace millrace::jinja {

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count)
    i += character_size(text.substr(i));
  return count;
}

size_t offset_of(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index)
    offset += character_size(text.substr(offset));
  return offset;
}

char32_t decode_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const auto tail = [&](size_t i) { return byte(i) & 0x3F; };
  switch (utf8_character_size(text)) {
  case 1: return byte(0);
  case 2: return (byte(0) & 0x1F) << 6 | tail(1);
  case 3: return (byte(0) & 0x0F) << 12 | tail(1) << 6 | tail(2);
  case 4: return (byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
  default: return 0xFFFD;
  }
}

void append_character(std::string& text, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
    c = 0xFFFD;
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | c >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0 | c >> 18);
    tail(12), tail(6), tail(0);
  }
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool is_upper(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_LL;
}

namespace {

template <class F> std::string map_characters(std::string_view text, F mapped) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_character_size(text.substr(i));
    if (size == 0)
      result += text[i];
    else
      mapped(result, decode_character(text.substr(i, size)));
    i += std::max<size_t>(size, 1);
  }
  return result;
}

} // namespace

std::string to_upper(std::string_view text) {
  return map_characters(text, [](std::string& result, char32_t c) {
    if (c == 0xDF)
      result += "SS";
    else
      append_character(result, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  });
}

std::string to_lower(std::string_view text) {
  return map_characters(text, [](std::string& result, char32_t c) {
    append_character(result, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  });
}

size_t last_character_size(std::string_view text) {
  for (size_t size = std::min<size_t>(4, text.size()); size > 1; --size)
    if (utf8_character_size(text.substr(text.size() - size)) == size)
      return size;
  return 1;
}

size_t leading_space(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && is_space(decode_character(text.substr(size))))
    size += character_size(text.substr(size));
  return size;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t size = last_character_size(text.substr(0, end));
    if (!is_space(decode_character(text.substr(end - size, size))))
      break;
    end -= size;
  }
  return text.size() - end;
}

} // namespace millrace::jinja
