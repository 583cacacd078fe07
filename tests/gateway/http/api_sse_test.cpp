#include "gateway/http/api/sse.hpp"

#include <gtest/gtest.h>

namespace millrace::http {
namespace {

TEST(EventId, NamesTheLastSeqOfEachChoice) {
  EventId id;
  EXPECT_EQ(id.text(), "");

  id.sent(1, 9);
  EXPECT_EQ(id.text(), "1:9");
  id.sent(0, 12);
  EXPECT_EQ(id.text(), "0:12,1:9");
  id.end();
  EXPECT_EQ(id.text(), "0:12,1:9,end");
}

TEST(EventId, LeadsBackToWhatComesNext) {
  const auto cursor = cursor_after("0:12,2:9");

  ASSERT_TRUE(cursor);
  EXPECT_EQ(cursor->next, (std::vector<int64_t>{13, 0, 10}));
  EXPECT_FALSE(cursor->ended);
  EXPECT_TRUE(cursor_after("0:12,2:9,end")->ended);
  EXPECT_TRUE(cursor_after("end")->ended);
  EXPECT_TRUE(cursor_after("")->next.empty()) << "of who has got nothing numbered yet";
  EXPECT_EQ(EventId(*cursor).text(), "0:12,2:9");
}

TEST(EventId, RefusesWhatIsNone) {
  for (const std::string_view text : {"x", "0", "0:", ":1", "0:-1", "0:1;1:2", "0:1,,1:2", "0:99999999999999999999",
                                      "1024:0", "0:1 ", "4611686018427387904:0", "0:1end", "0:1,,end", ",end", "0:1,",
                                      ",", "endend", "end,0:1", "0:1,End", "0:1,end,", "0:-0", "-0:1", "0:+1"})
    EXPECT_FALSE(cursor_after(text)) << text;
}

TEST(FromSeq, ANumberAloneIsForEveryChoice) {
  EXPECT_EQ(cursor_from("7", 3)->next, (std::vector<int64_t>{7, 7, 7}));
  EXPECT_EQ(cursor_from("0:12,2:9", 3)->next, (std::vector<int64_t>{12, 0, 9}));
  EXPECT_FALSE(cursor_from("-1", 3));
  EXPECT_FALSE(cursor_from("seven", 3));
  EXPECT_FALSE(cursor_from("", 3));
  EXPECT_FALSE(cursor_from("0:12,", 3));
  EXPECT_FALSE(cursor_from("-0", 3));
}

TEST(Event, IsFramedByItsLines) {
  std::string out;
  append_event(out, "token", "0:1", "{}");
  append_event(out, {}, {}, "[DONE]");

  EXPECT_EQ(out, "id: 0:1\nevent: token\ndata: {}\n\ndata: [DONE]\n\n");
}

} // namespace
} // namespace millrace::http
