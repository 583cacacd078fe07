#include "messages/utf8.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace millrace {
namespace {

std::string encode_utf8(uint32_t code_point) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code_point < 0x80)
    return {byte(code_point)};
  if (code_point < 0x800)
    return {byte(0xC0 | code_point >> 6), byte(0x80 | (code_point & 63))};
  if (code_point < 0x10000)
    return {byte(0xE0 | code_point >> 12), byte(0x80 | (code_point >> 6 & 63)),
            byte(0x80 | (code_point & 63))};
  return {byte(0xF0 | code_point >> 18), byte(0x80 | (code_point >> 12 & 63)),
          byte(0x80 | (code_point >> 6 & 63)), byte(0x80 | (code_point & 63))};
}

TEST(Utf8, AcceptsEveryCodePointButSurrogates) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(is_valid_utf8(encode_utf8(c)), !surrogate) << std::hex << c;
  }
}

TEST(Utf8, KnowsTheControlCharacters) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
    if (surrogate)
      continue;
    ASSERT_EQ(has_control_characters("a" + encode_utf8(c) + "\xC3\xA9"), control) << std::hex << c;
  }
  EXPECT_FALSE(has_control_characters(""));
}

TEST(Utf8, RefusesOverlongAndTooLargeForms) {
  EXPECT_FALSE(is_valid_utf8("\xC0\x80"));
  EXPECT_FALSE(is_valid_utf8("\xC1\xBF"));
  EXPECT_FALSE(is_valid_utf8("\xE0\x9F\xBF"));
  EXPECT_FALSE(is_valid_utf8("\xF0\x8F\xBF\xBF"));
  EXPECT_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));
  EXPECT_FALSE(is_valid_utf8("\xF5\x80\x80\x80"));
}

TEST(Utf8, RefusesEveryCutCharacterAtEveryPlaceInAWord) {
  for (size_t padding = 0; padding < 17; ++padding)
    for (const std::string_view character : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
      const std::string text = std::string(padding, 'a') + std::string(character);
      EXPECT_TRUE(is_valid_utf8(text + "tail of it"));
      for (size_t cut = 1; cut < character.size(); ++cut) {
        const std::string broken = text.substr(0, text.size() - cut);
        EXPECT_FALSE(is_valid_utf8(broken));
        EXPECT_FALSE(is_valid_utf8(broken + "tail of it"));
      }
    }
}

} // namespace
} // namespace millrace
