#include "gateway/journal_format.hpp"

#include "tests/gateway/peers.hpp"

#include <gtest/gtest.h>

namespace millrace {
namespace {

JournalHead head() {
  JournalHead head;
  head.principal = "curve:key";
  head.fingerprint = "model";
  head.body_hash = {"\x01\x02"};
  head.generate.request = test::stream(7);
  head.generate.prompt = "Once upon a time";
  head.generate.sampling.seed = 42;
  head.generate.readers = {"another key"};
  return head;
}

std::string file_of(std::initializer_list<std::string_view> events) {
  std::string bytes = encode_journal_head(head());
  for (const std::string_view event : events)
    append_record(bytes, bytes.size(), event);
  return bytes;
}

TEST(JournalFormat, ReadsWhatWasWritten) {
  const std::string bytes = file_of({"one", "two", "three"});

  const auto contents = read_journal(bytes);

  ASSERT_TRUE(contents);
  EXPECT_EQ(contents->head.principal, "curve:key");
  EXPECT_EQ(contents->head.fingerprint, "model");
  EXPECT_EQ(contents->head.body_hash, head().body_hash);
  EXPECT_EQ(contents->head.generate.prompt, "Once upon a time");
  EXPECT_EQ(contents->head.generate.sampling.seed, 42);
  EXPECT_EQ(contents->head.generate.readers, head().generate.readers);
  EXPECT_EQ(contents->events, (std::vector<std::string_view>{"one", "two", "three"}));
  EXPECT_EQ(contents->good_bytes, bytes.size());
}

TEST(JournalFormat, DropsACutTailWhereverItIsCut) {
  const std::string whole = file_of({"one", "two"});
  const size_t head_size = file_of({}).size(), one_size = file_of({"one"}).size();

  for (size_t size = 0; size < whole.size(); ++size) {
    const auto contents = read_journal(std::string_view(whole).substr(0, size));
    ASSERT_EQ(contents.has_value(), size >= head_size) << size;
    if (!contents)
      continue;
    ASSERT_EQ(contents->events.size(), size < one_size ? 0u : 1u) << size;
    ASSERT_EQ(contents->good_bytes, size < one_size ? head_size : one_size) << size;
  }
}

TEST(JournalFormat, DropsEverythingFromADamagedBitOn) {
  const std::string whole = file_of({"one", "two", "three"});
  const size_t one_size = file_of({"one"}).size(), two_size = file_of({"one", "two"}).size();

  for (size_t at = one_size; at < two_size; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      const auto contents = read_journal(damaged);
      ASSERT_TRUE(contents);
      ASSERT_EQ(contents->events, std::vector<std::string_view>{"one"}) << at;
    }
}

TEST(JournalFormat, RefusesADamagedHead) {
  const std::string whole = file_of({"one"});

  for (size_t at = 0; at < file_of({}).size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    ASSERT_FALSE(read_journal(damaged)) << at;
  }
}

TEST(JournalFormat, RefusesAHeadOfALaterVersion) {
  JournalHead later = head();
  later.version = 2;

  EXPECT_FALSE(read_journal(encode_journal_head(later)));
}

TEST(JournalFormat, RefusesAHeadWithMoreChoicesThanAreServed) {
  for (const int32_t n : {-1, 0, 17, 2'000'000'000}) {
    JournalHead odd = head();
    odd.generate.n = n;
    EXPECT_FALSE(read_journal(encode_journal_head(odd))) << n;
  }
}

TEST(JournalFormat, TakesNoRecordFromAnotherPlace) {
  std::string bytes = file_of({"one", "two"});
  const size_t one_size = file_of({"one"}).size();

  bytes += bytes.substr(one_size); // the second event again

  EXPECT_EQ(read_journal(bytes)->events.size(), 2u);
}

TEST(JournalFormat, EndsAtZeros) {
  std::string bytes = file_of({"one"});
  const size_t size = bytes.size();

  bytes.append(4096, '\0'); // what a file system may leave after a power cut

  EXPECT_EQ(read_journal(bytes)->good_bytes, size);
}

TEST(JournalFormat, RefusesAHeadThatIsLargerThanAFrame) {
  JournalHead large = head();
  large.generate.prompt->assign(kMaxFrameBytes, 'x');

  EXPECT_THROW(encode_journal_head(large), std::length_error);
}

} // namespace
} // namespace millrace
