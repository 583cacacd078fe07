#include "gateway/stream_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace millrace::test {
namespace {

Token token(int64_t seq, int32_t choice = 0) {
  Token event;
  event.choice = choice;
  event.seq = seq;
  return event;
}
Finished finished(int64_t seq, int32_t choice = 0) {
  Finished event;
  event.choice = choice;
  event.seq = seq;
  return event;
}

class StreamOrderTest : public testing::Test {
protected:
  /// What the reader gets now: "0.3" is seq 3 of choice 0, "f0.4" its Finished.
  std::string read(StreamOrder& order) {
    std::string text;
    while (auto event = order.pop()) {
      if (const auto* token = std::get_if<Token>(&*event))
        text += std::to_string(token->choice) + '.' + std::to_string(token->seq) + ' ';
      else if (const auto* end = std::get_if<Finished>(&*event))
        text += 'f' + std::to_string(end->choice) + '.' + std::to_string(end->seq) + ' ';
      else if (const auto* lag = std::get_if<Lagging>(&*event))
        text += "lost" + std::to_string(lag->wanted_seq) + '-' + std::to_string(lag->held_seq) + ' ';
      else
        text += std::holds_alternative<Done>(*event)       ? "done "
                : std::holds_alternative<Rejected>(*event) ? "no "
                                                           : "* ";
    }
    return text;
  }

  StreamOrder order_{StreamId{}, {0}, 100};
};

TEST_F(StreamOrderTest, PassesOnWhatComesInOrder) {
  order_.take(Started{});
  order_.take(token(0));
  order_.take(token(1));
  order_.take(finished(2));
  order_.take(Done{});

  EXPECT_FALSE(order_.ended());
  EXPECT_EQ(read(order_), "* 0.0 0.1 f0.2 done ");
  EXPECT_TRUE(order_.ended());
  EXPECT_FALSE(order_.missing());
}

TEST_F(StreamOrderTest, HoldsWhatIsBehindAGapAndAsksForIt) {
  order_.take(token(0));
  order_.take(token(3));

  EXPECT_EQ(read(order_), "0.0 ");
  ASSERT_TRUE(order_.missing());
  EXPECT_EQ(order_.missing()->seq, 1);
  order_.take(token(1));
  order_.take(token(2));
  EXPECT_EQ(read(order_), "0.1 0.2 0.3 ");
  EXPECT_FALSE(order_.missing());
}

TEST_F(StreamOrderTest, TakesEachSeqOnce) {
  for (const int64_t seq : {0, 0, 2, 2, 1, 2, 0, 1})
    order_.take(token(seq));

  EXPECT_EQ(read(order_), "0.0 0.1 0.2 ");
}

TEST_F(StreamOrderTest, HearsOfAGapWithoutAnEvent) {
  order_.told({3, 1});

  EXPECT_EQ(order_.missing()->choice, 0);
  for (int seq = 0; seq < 3; ++seq)
    order_.take(token(seq));
  EXPECT_EQ(order_.missing()->choice, 1);
}

TEST_F(StreamOrderTest, KeepsTheEndUntilAllChoicesHaveEnded) {
  order_.told({0, 0});
  order_.take(finished(0, 1));
  order_.take(Done{});

  EXPECT_EQ(read(order_), "f1.0 ");
  EXPECT_EQ(order_.missing()->choice, 0);
  order_.take(finished(0, 0));
  EXPECT_EQ(read(order_), "f0.0 done ");
}

TEST_F(StreamOrderTest, GoesOnBehindWhatIsGone) {
  order_.take(token(0));
  order_.told({9});
  order_.take(token(7)); // of the replay
  order_.take(token(8));
  order_.replayed(0, 7, 9);

  EXPECT_EQ(read(order_), "0.0 lost1-7 0.7 0.8 ");
  EXPECT_FALSE(order_.missing());
}

TEST_F(StreamOrderTest, EndsThoughTheEndOfItsChoiceIsGone) {
  order_.take(token(0));
  order_.take(Done{});
  order_.replayed(0, 5, 5);

  EXPECT_EQ(read(order_), "0.0 lost1-5 lost5-5 done ");
  EXPECT_TRUE(order_.ended());
}

TEST_F(StreamOrderTest, EndsAtOnceWhenItIsRefused) {
  order_.take(token(5));
  order_.take(Rejected{});
  order_.take(token(0));

  EXPECT_EQ(read(order_), "no ");
  EXPECT_TRUE(order_.ended());
}

TEST_F(StreamOrderTest, LeavesToTheLogWhatAReaderHasNoRoomFor) {
  StreamOrder order({}, {0}, 4);
  for (int seq = 0; seq < 20; ++seq)
    order.take(token(seq));
  order.take(finished(20));
  order.take(Done{});

  EXPECT_FALSE(order.missing());
  EXPECT_EQ(read(order), "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 ");
  EXPECT_EQ(order.missing()->seq, 8);
  for (int round = 0; round < 10 && !order.ended(); ++round) { // each replay from where the reader is
    for (int64_t seq = order.next()[0]; seq < 20; ++seq)
      order.take(token(seq));
    order.take(finished(20));
    read(order);
  }
  EXPECT_TRUE(order.ended());
}

TEST_F(StreamOrderTest, IsNotMovedByNumbersOfABrokenServer) {
  order_.take(token(0, -1));
  order_.take(token(0, 1 << 30));
  order_.take(token(-5));
  order_.take(token(INT64_MAX - 1));
  order_.told(std::vector<int64_t>(100'000, -7));
  order_.replayed(1 << 30, 5, 5);

  EXPECT_EQ(read(order_), "");
}

TEST_F(StreamOrderTest, GivesTheSameWhateverIsLostAndRepeated) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    constexpr int64_t kTokens = 30;
    StreamOrder order({}, {0, 0}, 1 + random() % 10);
    std::string got[2];
    const auto drain = [&] {
      while (auto event = order.pop()) {
        if (const auto* t = std::get_if<Token>(&*event))
          got[t->choice] += std::to_string(t->seq) + ' ';
        ASSERT_FALSE(std::holds_alternative<Lagging>(*event));
      }
    };
    const auto send = [&](int32_t choice, int64_t seq) {
      order.take(seq < kTokens ? Event(token(seq, choice)) : Event(finished(seq, choice)));
      if (random() % 3 == 0)
        drain();
    };
    for (int64_t seq = 0; seq <= kTokens; ++seq)
      for (const int32_t choice : {0, 1})
        for (int copies = static_cast<int>(random() % 3); copies > 0; --copies)
          send(choice, seq);
    order.take(Done{});
    drain();
    for (int repair = 0; repair < 200 && !order.ended(); ++repair) {
      const auto missing = order.missing();
      ASSERT_TRUE(missing);
      for (int64_t seq = missing->seq; seq <= kTokens; ++seq)
        send(missing->choice, seq);
      order.replayed(missing->choice, missing->seq, kTokens + 1);
      drain();
    }
    ASSERT_TRUE(order.ended());
    ASSERT_EQ(got[0], got[1]);
    ASSERT_EQ(std::count(got[0].begin(), got[0].end(), ' '), kTokens);
  }
}

} // namespace
} // namespace millrace::test
