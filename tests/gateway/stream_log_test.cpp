#include "gateway/stream_log.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = StreamLog::Verdict;

constexpr StreamLog::Limits kRoomy{.stream_bytes = 1u << 20, .total_bytes = 8u << 20, .ttl = seconds(300)};
constexpr StreamLog::Time kStart{};

StreamId stream(uint8_t name) {
  StreamId id;
  id.bytes.fill(name);
  return id;
}

SequenceId sequence(uint8_t name, int32_t choice = 0, uint32_t epoch = 0) {
  return {stream(name), choice, epoch};
}

zmq::message_t frame(const std::string& text) {
  return zmq::message_t(text.data(), text.size());
}

/// Appends frames "first" … "last - 1" to choice 0.
void append(StreamLog& log, uint8_t name, int64_t first, int64_t last, size_t bytes = 8) {
  for (int64_t seq = first; seq < last; ++seq) {
    std::string text = std::to_string(seq);
    text.resize(bytes, ' ');
    ASSERT_EQ(log.append(sequence(name), seq, false, frame(text), kStart), Verdict::taken);
  }
}

/// The text of the event that stands at a seq, or of the end if it is the next one to read.
std::string text_at(StreamLog& log, uint8_t name, int32_t choice, int64_t seq) {
  Cursor cursor;
  cursor.next.assign(log.next_seqs(stream(name)).size(), std::numeric_limits<int64_t>::max());
  cursor.next.at(choice) = seq;
  const auto piece = log.read(stream(name), cursor, 1);
  return piece.events.empty() ? "" : piece.events.front().body.to_string();
}

TEST(StreamLog, HoldsEventsBySeqAndTellsWhatComesNext) {
  StreamLog log(kRoomy);
  ASSERT_TRUE(log.open(stream(1), 2, kStart));
  append(log, 1, 0, 3);
  ASSERT_EQ(log.append(sequence(1, 1), 0, false, frame("other"), kStart), Verdict::taken);

  EXPECT_EQ(log.next_seqs(stream(1)), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(text_at(log, 1, 0, 2).front(), '2');
  EXPECT_EQ(text_at(log, 1, 1, 0), "other");
}

TEST(StreamLog, SharesTheBytesOfAFrameWithWhoReadsIt) {
  StreamLog log(kRoomy);
  log.open(stream(1), 1, kStart);
  append(log, 1, 0, 1, 100); // libzmq copies frames of up to 33 bytes

  const auto read = [&] {
    Cursor cursor;
    return std::move(log.read(stream(1), cursor, 1).events.at(0).body);
  };
  EXPECT_EQ(read().data(), read().data());
}

TEST(StreamLog, RefusesAnIdThatIsLiveOrStillHeld) {
  StreamLog log(kRoomy);
  ASSERT_TRUE(log.open(stream(1), 1, kStart));
  EXPECT_FALSE(log.open(stream(1), 1, kStart));
  ASSERT_EQ(log.end(stream(1), frame("done"), kStart), Verdict::taken);
  EXPECT_FALSE(log.open(stream(1), 1, kStart));

  log.expire(kStart + kRoomy.ttl);
  EXPECT_TRUE(log.open(stream(1), 1, kStart));
}

TEST(StreamLog, RefusesGapsAndRepetitions) {
  StreamLog log(kRoomy);
  log.open(stream(1), 1, kStart);
  append(log, 1, 0, 2);

  EXPECT_EQ(log.append(sequence(1), 1, false, frame("again"), kStart), Verdict::out_of_order);
  EXPECT_EQ(log.append(sequence(1), 3, false, frame("gap"), kStart), Verdict::out_of_order);
  EXPECT_EQ(log.append(sequence(1), -1, false, frame("negative"), kStart), Verdict::out_of_order);
  EXPECT_EQ(log.append(sequence(1), 2, false, frame("next"), kStart), Verdict::taken);
}

TEST(StreamLog, DropsWhatAnOldOwnerStillSends) {
  StreamLog log(kRoomy);
  log.open(stream(1), 2, kStart);
  append(log, 1, 0, 1);
  ASSERT_EQ(log.admit(sequence(1, 0, 2), kStart), Verdict::taken); // the new owner has started

  EXPECT_EQ(log.append(sequence(1, 0, 1), 1, false, frame("old"), kStart), Verdict::stale_epoch);
  EXPECT_EQ(log.admit(sequence(1, 0, 1), kStart), Verdict::stale_epoch);
  EXPECT_EQ(log.append(sequence(1, 0, 2), 1, false, frame("new"), kStart), Verdict::taken);
  EXPECT_EQ(log.append(sequence(1, 1, 0), 0, false, frame("other choice"), kStart), Verdict::taken);
}

TEST(StreamLog, TakesNothingAfterTheEndOfAChoiceOrStream) {
  StreamLog log(kRoomy);
  log.open(stream(1), 1, kStart);
  ASSERT_EQ(log.append(sequence(1), 0, true, frame("finished"), kStart), Verdict::taken);
  EXPECT_EQ(log.append(sequence(1), 1, false, frame("late"), kStart), Verdict::out_of_order);
  EXPECT_TRUE(log.live(stream(1)));

  ASSERT_EQ(log.end(stream(1), frame("done"), kStart), Verdict::taken);
  EXPECT_EQ(log.end(stream(1), frame("done again"), kStart), Verdict::unknown_stream);
  EXPECT_EQ(log.admit(sequence(1), kStart), Verdict::unknown_stream);
  EXPECT_EQ(text_at(log, 1, 0, 1), "done");
  EXPECT_FALSE(log.live(stream(1)));
}

TEST(StreamLog, KnowsNoOtherStreamsOrChoices) {
  StreamLog log(kRoomy);
  log.open(stream(1), 2, kStart);

  EXPECT_EQ(log.append(sequence(2), 0, false, frame("x"), kStart), Verdict::unknown_stream);
  EXPECT_EQ(log.append(sequence(1, 2), 0, false, frame("x"), kStart), Verdict::unknown_stream);
  EXPECT_EQ(log.append(sequence(1, -1), 0, false, frame("x"), kStart), Verdict::unknown_stream);
  EXPECT_EQ(log.end(stream(2), frame("x"), kStart), Verdict::unknown_stream);
  EXPECT_FALSE(log.held(stream(2), 0));
  EXPECT_FALSE(log.held(stream(1), 2));
  EXPECT_FALSE(log.held(stream(1), -1));
  EXPECT_TRUE(log.next_seqs(stream(2)).empty());
}

TEST(StreamLog, DropsTheOldestEventsOfAStreamOverItsCap) {
  StreamLog log({.stream_bytes = 10'000, .total_bytes = 1u << 20, .ttl = seconds(1)});
  log.open(stream(1), 1, kStart);
  append(log, 1, 0, 100, 1'000);

  const auto held = log.held(stream(1), 0);
  ASSERT_TRUE(held);
  EXPECT_EQ(held->next, 100);
  EXPECT_GE(held->first, 91);
  EXPECT_LT(held->first, 95);
  EXPECT_LE(log.bytes(), 10'000u);
  EXPECT_EQ(text_at(log, 1, 0, held->first).substr(0, 2), std::to_string(held->first));
}

TEST(StreamLog, DropsTheOldestEventWhateverItsChoice) {
  StreamLog log({.stream_bytes = 8'000, .total_bytes = 1u << 20, .ttl = seconds(1)});
  log.open(stream(1), 2, kStart);
  log.append(sequence(1, 0), 0, false, frame(std::string(2'000, 'a')), kStart);
  log.append(sequence(1, 1), 0, false, frame(std::string(2'000, 'b')), kStart);
  log.append(sequence(1, 1), 1, false, frame(std::string(2'000, 'c')), kStart);

  EXPECT_EQ(log.held(stream(1), 0)->first, 1);
  EXPECT_EQ(log.held(stream(1), 1)->first, 0);
}

TEST(StreamLog, SurvivesAnEventLargerThanItsCap) {
  StreamLog log({.stream_bytes = 4'000, .total_bytes = 1u << 20, .ttl = seconds(1)});
  log.open(stream(1), 1, kStart);
  append(log, 1, 0, 1, 100'000);
  append(log, 1, 1, 2);

  EXPECT_EQ(log.held(stream(1), 0)->first, 1);
  EXPECT_EQ(log.held(stream(1), 0)->next, 2);
}

TEST(StreamLog, ForgetsTheOldestEndedStreamOverTheTotalCap) {
  StreamLog log({.stream_bytes = 1u << 20, .total_bytes = 100'000, .ttl = seconds(300)});
  for (uint8_t name = 1; name <= 3; ++name) {
    log.open(stream(name), 1, kStart);
    append(log, name, 0, 25, 1'000);
  }
  log.end(stream(2), frame("done"), kStart);
  log.end(stream(1), frame("done"), kStart);
  log.open(stream(4), 1, kStart);
  append(log, 4, 0, 25, 1'000);

  EXPECT_FALSE(log.contains(stream(2))); // ended first
  EXPECT_TRUE(log.contains(stream(1)));
  EXPECT_TRUE(log.contains(stream(3)));
  EXPECT_LE(log.bytes(), 100'000u);
}

TEST(StreamLog, TakesFromTheLargestLiveStreamWhenNoneHasEnded) {
  StreamLog log({.stream_bytes = 1u << 20, .total_bytes = 60'000, .ttl = seconds(300)});
  log.open(stream(1), 1, kStart);
  append(log, 1, 0, 50, 1'000);
  log.open(stream(2), 1, kStart);
  append(log, 2, 0, 20, 1'000);

  EXPECT_GT(log.held(stream(1), 0)->first, 0);
  EXPECT_EQ(log.held(stream(2), 0)->first, 0);
  EXPECT_LE(log.bytes(), 60'000u);
}

TEST(StreamLog, IsBoundedForManyEmptyStreams) {
  StreamLog log({.stream_bytes = 1u << 20, .total_bytes = 1u << 20, .ttl = seconds(300)});
  for (int i = 0; i < 20'000; ++i) {
    StreamId id;
    std::memcpy(id.bytes.data(), &i, sizeof i);
    log.open(id, 1, kStart);
    log.end(id, frame("rejected"), kStart);
  }

  EXPECT_LE(log.bytes(), 1u << 20);
  EXPECT_LT(log.size(), 1'000u);
}

TEST(StreamLog, BeginsNoMoreLiveStreamsThanItHasRoomFor) {
  StreamLog log({.stream_bytes = 1u << 20, .total_bytes = 1u << 20, .ttl = seconds(300)});
  uint8_t name = 0;
  while (name < 255 && log.open(stream(name), 16, kStart))
    ++name;
  ASSERT_LT(name, 255);
  EXPECT_LE(log.bytes(), 1u << 20);

  log.end(stream(0), frame("done"), kStart);
  EXPECT_TRUE(log.open(stream(name), 16, kStart)) << "ended ones make room";
  EXPECT_FALSE(log.open(stream(254), 16, kStart));
  log.remove(stream(1));
  EXPECT_TRUE(log.open(stream(254), 16, kStart)) << "and so do those that are taken out";
}

TEST(StreamLog, NeverDropsWhatTellsThatAChoiceStarted) {
  StreamLog log({.stream_bytes = 10'000, .total_bytes = 1u << 20, .ttl = seconds(1)});
  log.open(stream(1), 1, kStart);
  log.start(sequence(1), frame("started"), kStart);
  log.keep(sequence(1), frame("log-probs"), kStart);
  append(log, 1, 0, 100, 1'000);

  Cursor cursor;
  const auto piece = log.read(stream(1), cursor, 1u << 20);

  EXPECT_EQ(piece.events.front().body.to_string(), "started");
  EXPECT_EQ(piece.events.at(1).seq, piece.lag->held) << "the prompt's log-probs were older than what is held";
  EXPECT_LE(log.bytes(), 10'000u);
}

TEST(StreamLog, TellsWhichStreamsItForgot) {
  std::vector<StreamId> erased;
  StreamLog log(kRoomy, [&](const StreamId& id) { erased.push_back(id); });
  for (uint8_t name = 1; name <= 3; ++name)
    log.open(stream(name), 1, kStart);
  log.end(stream(2), frame("done"), kStart);
  log.expire(kStart + kRoomy.ttl);
  log.remove(stream(3));

  EXPECT_EQ(erased, std::vector{stream(2)});
  EXPECT_EQ(log.size(), 1u);
}

TEST(StreamLog, ReturnsToZeroBytesWhenAllIsForgotten) {
  StreamLog log(kRoomy);
  for (uint8_t name = 1; name <= 5; ++name) {
    log.open(stream(name), 3, kStart);
    log.start(sequence(name), frame("started"), kStart);
    log.start(sequence(name), frame("started again"), kStart);
    log.keep(sequence(name), frame("log-probs"), kStart);
    append(log, name, 0, 10);
    log.end(stream(name), frame("done"), kStart);
  }
  log.expire(kStart + kRoomy.ttl);

  EXPECT_EQ(log.size(), 0u);
  EXPECT_EQ(log.bytes(), 0u);
}

TEST(StreamLog, ForgetsAnEndedStreamAfterItsTimeAndNoLiveOne) {
  StreamLog log(kRoomy);
  log.open(stream(1), 1, kStart);
  log.open(stream(2), 1, kStart);
  log.end(stream(1), frame("done"), kStart + seconds(100));

  log.expire(kStart + seconds(399));
  EXPECT_TRUE(log.contains(stream(1)));
  log.expire(kStart + seconds(400));
  EXPECT_FALSE(log.contains(stream(1)));
  log.expire(kStart + seconds(1'000'000));
  EXPECT_TRUE(log.contains(stream(2)));
}

TEST(StreamLog, NamesEachSilentStreamOncePerInterval) {
  StreamLog log(kRoomy);
  for (uint8_t name = 1; name <= 3; ++name)
    log.open(stream(name), 1, kStart);
  log.append(sequence(1), 0, false, frame("x"), kStart + milliseconds(500));
  log.end(stream(3), frame("done"), kStart);

  EXPECT_TRUE(log.idle(kStart + milliseconds(999), seconds(1)).empty());
  EXPECT_EQ(log.idle(kStart + milliseconds(1'000), seconds(1)), std::vector{stream(2)});
  EXPECT_TRUE(log.idle(kStart + milliseconds(1'499), seconds(1)).empty());
  EXPECT_EQ(log.idle(kStart + milliseconds(2'000), seconds(1)), (std::vector{stream(1), stream(2)}));
  EXPECT_EQ(log.idle(kStart + milliseconds(2'000), seconds(0)).size(), 2u); // ends even without an interval
}

} // namespace
} // namespace millrace
