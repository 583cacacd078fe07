#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "messages/sequence.hpp"

#include <gtest/gtest.h>

#include <set>

namespace millrace {
namespace {

TEST(StreamId, TravelsThroughHex) {
  const StreamId id = random_stream_id();

  const std::string hex = to_hex(id);

  EXPECT_EQ(hex.size(), 32u);
  EXPECT_EQ(stream_id_from_hex(hex), id);
}

TEST(StreamId, WritesLowerCaseAndReadsBoth) {
  const auto id = stream_id_from_hex("00112233445566778899AABBCCDDEEff");

  ASSERT_TRUE(id);
  EXPECT_EQ(to_hex(*id), "00112233445566778899aabbccddeeff");
}

TEST(StreamId, RefusesWhatIsNot32HexDigits) {
  for (const std::string_view text : {"", "00", "00112233445566778899aabbccddeef",
                                      "00112233445566778899aabbccddeeff0", "00112233445566778899aabbccddeefg",
                                      " 0112233445566778899aabbccddeeff", "0x112233445566778899aabbccddeeff"})
    EXPECT_FALSE(stream_id_from_hex(text)) << text;
}

TEST(StreamId, IsFreshEachTime) {
  std::set<StreamId> ids;
  for (int i = 0; i < 1000; ++i)
    ids.insert(random_stream_id());

  EXPECT_EQ(ids.size(), 1000u);
}

TEST(Names, OfErrorsAreDistinct) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Error::internal); ++code)
    names.insert(to_string(static_cast<Error>(code)));

  EXPECT_EQ(names.size(), static_cast<size_t>(Error::internal) + 1);
  EXPECT_EQ(to_string(Error::prompt_too_long), "prompt_too_long");
}

TEST(Names, OfFinishReasonsAreDistinct) {
  std::set<std::string_view> names;
  for (int reason = 0; reason <= static_cast<int>(FinishReason::error); ++reason)
    names.insert(to_string(static_cast<FinishReason>(reason)));

  EXPECT_EQ(names.size(), static_cast<size_t>(FinishReason::error) + 1);
}

} // namespace
} // namespace millrace
