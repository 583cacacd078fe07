#include "gateway/stream_text.hpp"

#include "gateway/event_frame.hpp"
#include "tests/gateway/gateway_test.hpp"

namespace millrace::test {
namespace {

StreamLog::Piece piece_of(const std::vector<Event>& events) {
  StreamLog::Piece piece;
  piece.known = true;
  for (const Event& event : events)
    piece.events.push_back(to_logged(event));
  return piece;
}

StreamText text_of(size_t tokens, size_t bytes) {
  StreamText text(1, 1u << 20);
  for (size_t seq = 0; seq < tokens; ++seq)
    text.take(piece_of({token(1, static_cast<int64_t>(seq), 0, 0, bytes)}));
  return text;
}

TEST(StreamText, DropsTheOldestOfTheLongestChoice) {
  StreamText text(2, 1'000);
  text.take(piece_of({token(1, 0, 1, 0, 100)}));
  for (int64_t seq = 0; seq < 20; ++seq)
    text.take(piece_of({token(1, seq, 0, 0, 100)}));

  const auto choices = text.choices();
  EXPECT_EQ(choices[1].first_seq, 0);
  EXPECT_EQ(choices[1].text.size(), 100u);
  EXPECT_EQ(choices[0].first_seq, 11);
  EXPECT_EQ(choices[0].next_seq, 20);
  EXPECT_EQ(choices[0].text.substr(0, 9), " token 11");
  EXPECT_EQ(choices[0].text.size(), 900u);
}

TEST(StreamText, BeginsAnewBehindALag) {
  StreamText text(1, 1'000);
  text.take(piece_of({token(1, 0), token(1, 1)}));
  StreamLog::Piece later = piece_of({token(1, 7), finished(1, 8)});
  later.lag = StreamLog::Lag{0, 2, 7};
  text.take(later);

  const auto choices = text.choices();
  EXPECT_EQ(choices[0].first_seq, 7);
  EXPECT_EQ(choices[0].next_seq, 9);
  EXPECT_EQ(choices[0].text, " token 7");
  EXPECT_EQ(choices[0].reason, "stop");
  EXPECT_FALSE(text.behind({9}));
  EXPECT_TRUE(text.behind({10}));
}

TEST(StreamText, IsWithoutWhatTheLogHasDropped) {
  StreamText text = text_of(100, 10);
  text.drop_before(0, 98);

  EXPECT_EQ(text.choices()[0].text, token(1, 98, 0, 0, 10).text + token(1, 99, 0, 0, 10).text);
  text.drop_before(0, 200); // no further than it was read
  EXPECT_EQ(text.choices()[0].first_seq, 100);
}

TEST(StreamTexts, KeepTheLatestThatFit) {
  StreamTexts texts(50'000);
  for (uint8_t name = 1; name <= 3; ++name)
    texts.put(stream(name), text_of(100, 100));
  auto first = texts.take(stream(1));
  ASSERT_TRUE(first);
  EXPECT_FALSE(texts.take(stream(1)));
  texts.put(stream(1), *std::move(first));

  for (uint8_t name = 4; name <= 5; ++name)
    texts.put(stream(name), text_of(100, 100));

  EXPECT_FALSE(texts.take(stream(2))) << "the one that nobody wanted for longest";
  EXPECT_TRUE(texts.take(stream(1)));
  EXPECT_TRUE(texts.take(stream(5)));
}

TEST(StreamTexts, KeepNothingThatIsTooLarge) {
  StreamTexts texts(1'000);
  texts.put(stream(1), text_of(100, 100));
  EXPECT_FALSE(texts.take(stream(1)));
}

} // namespace
} // namespace millrace::test
