#include "model/text/detokenizer.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace millrace {
namespace {

std::string whole(std::string_view bytes) {
  Detokenizer detokenizer;
  std::string text = detokenizer.push(bytes);
  return text + detokenizer.finish();
}

std::string by_bytes(std::string_view bytes) {
  Detokenizer detokenizer;
  std::string text;
  for (const char byte : bytes)
    text += detokenizer.push({&byte, 1});
  return text + detokenizer.finish();
}

/// The repair by its definition: try each well-formed character at a place, else the longest beginning of
/// one.
std::string repaired(std::string_view bytes) {
  // First byte, second byte, length: The Unicode Standard, table 3-7.
  struct Row {
    int first, last, low, high, length;
  };
  static constexpr Row kRows[] = {
      {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
      {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
      {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    int good = 0, length = 0;
    for (const Row& row : kRows) {
      const auto in = [&](size_t at, int low, int high) {
        return at < bytes.size() && static_cast<uint8_t>(bytes[at]) >= low &&
               static_cast<uint8_t>(bytes[at]) <= high;
      };
      if (!in(i, row.first, row.last))
        continue;
      length = row.length;
      for (good = 1; good < length; ++good)
        if (!in(i + good, good == 1 ? row.low : 0x80, good == 1 ? row.high : 0xBF))
          break;
    }
    text += length && good == length ? std::string(bytes.substr(i, length)) : "\xEF\xBF\xBD";
    i += std::max(good, 1);
  }
  return text;
}

TEST(Detokenizer, HoldsACharacterBackUntilItIsComplete) {
  Detokenizer detokenizer;

  EXPECT_EQ(detokenizer.push("a\xF0\x9F"), "a");
  EXPECT_TRUE(detokenizer.pending());
  EXPECT_EQ(detokenizer.push("\x98"), "");
  EXPECT_EQ(detokenizer.push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_FALSE(detokenizer.pending());
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ReplacesAnIncompleteCharacterAtTheEnd) {
  Detokenizer detokenizer;

  EXPECT_EQ(detokenizer.push("\xE2\x82"), "");
  EXPECT_EQ(detokenizer.finish(), "\xEF\xBF\xBD");
  EXPECT_FALSE(detokenizer.pending());
  EXPECT_EQ(detokenizer.push("fresh"), "fresh");
}

TEST(Detokenizer, ReplacesEachMaximalSubpartOnce) {
  // The example of The Unicode Standard, table 3-11.
  EXPECT_EQ(whole("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c\xEF\xBF\xBD\xEF\xBF\xBD"
            "d");
}

TEST(Detokenizer, RepairsEveryPairOfBytesHoweverItIsSplit) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string pair = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_EQ(whole(pair), repaired(pair)) << std::hex << first << " " << second;
      ASSERT_EQ(by_bytes(pair), repaired(pair)) << std::hex << first << " " << second;
      const std::string framed = "<" + pair + ">";
      ASSERT_EQ(by_bytes(framed), repaired(framed)) << std::hex << first << " " << second;
    }
}

TEST(Detokenizer, RepairsRandomBytesHoweverTheyAreSplit) {
  // Bytes near the borders of the table, so that most sequences come close to being well-formed.
  static constexpr unsigned char kBytes[] = {0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2,
                                             0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 12, ' ');
    for (char& byte : bytes)
      byte = static_cast<char>(kBytes[random() % sizeof kBytes]);

    Detokenizer detokenizer;
    std::string text;
    for (size_t i = 0; i < bytes.size();) {
      const size_t length = random() % 4;
      text += detokenizer.push(std::string_view(bytes).substr(i, length));
      i += length;
    }
    text += detokenizer.finish();

    ASSERT_EQ(text, repaired(bytes));
  }
}

} // namespace
} // namespace millrace
