#include "model/text/stop_matcher.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace millrace {
namespace {

/// Everything that came out of a choice whose tokens were pushed until it stopped.
struct Outcome {
  std::vector<ReleasedToken> released;
  std::string bytes, text;
  bool stopped = false;
  size_t pushed = 0;
};

Outcome run(const std::vector<std::string>& stop, const std::vector<std::string>& tokens) {
  StopMatcher matcher(stop);
  Outcome outcome;
  const auto take = [&](std::vector<ReleasedToken> released) {
    for (ReleasedToken& token : released) {
      outcome.bytes += token.bytes;
      outcome.text += token.text;
      outcome.released.push_back(std::move(token));
    }
  };
  for (const std::string& token : tokens) {
    auto result = matcher.push(token);
    ++outcome.pushed;
    take(std::move(result.released));
    if (result.stopped)
      break;
  }
  std::string tail;
  take(matcher.finish(tail));
  outcome.text += tail;
  outcome.stopped = matcher.stopped();
  return outcome;
}

std::string repaired(std::string_view bytes) {
  Detokenizer detokenizer;
  std::string text = detokenizer.push(bytes);
  return text + detokenizer.finish();
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens)
    all += token;
  return all;
}

size_t first_match(const std::vector<std::string>& stop, std::string_view bytes) {
  size_t first = std::string::npos;
  for (const std::string& s : stop)
    first = std::min(first, bytes.find(s));
  return first;
}

/// The first place from which the bytes to their end could still become a stop string.
size_t first_possible(const std::vector<std::string>& stop, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const std::string& s : stop)
      if (s.starts_with(bytes.substr(i)))
        return i;
  return bytes.size();
}

TEST(StopMatcher, PassesTokensOnAtOnceWithoutStopStrings) {
  StopMatcher matcher({});

  const auto result = matcher.push("Hello");

  ASSERT_EQ(result.released.size(), 1u);
  EXPECT_EQ(result.released[0].index, 0);
  EXPECT_EQ(result.released[0].bytes, "Hello");
  EXPECT_EQ(result.released[0].text, "Hello");
}

TEST(StopMatcher, FindsAStopStringOverSeveralTokens) {
  const Outcome outcome = run({"O P Q"}, {"L", " M", " N", " O", " P", " Q", " R"});

  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.text, "L M N ");
  EXPECT_EQ(outcome.pushed, 6u);
}

TEST(StopMatcher, SendsNoPartOfAStopString) {
  StopMatcher matcher({"DEFGHIJ"});

  EXPECT_EQ(matcher.push("ABC").released.size(), 1u);
  for (const char* token : {"D", "EF", "GHI"})
    EXPECT_TRUE(matcher.push(token).released.empty()) << token;
  const auto result = matcher.push("JK");
  EXPECT_TRUE(result.stopped);
  EXPECT_TRUE(result.released.empty());
}

TEST(StopMatcher, FindsAStopStringInsideATokenAndCutsIt) {
  const Outcome outcome = run({"ari"}, {"In ", "Paris", "!"});

  ASSERT_EQ(outcome.released.size(), 2u);
  EXPECT_EQ(outcome.released[1].index, 1);
  EXPECT_EQ(outcome.released[1].bytes, "P");
  EXPECT_EQ(outcome.released[1].text, "P");
  EXPECT_TRUE(outcome.stopped);
}

TEST(StopMatcher, DropsTokensThatAStopStringSwallows) {
  const Outcome outcome = run({"\n\nUser:"}, {"Hi", ".\n", "\n", "User", ":"});

  ASSERT_EQ(outcome.released.size(), 2u);
  EXPECT_EQ(outcome.released[1].bytes, ".");
}

TEST(StopMatcher, ReleasesWhatTurnsOutNotToBeAStopString) {
  StopMatcher matcher({"abcd"});
  EXPECT_TRUE(matcher.push("ab").released.empty());
  EXPECT_TRUE(matcher.push("c").released.empty());

  const auto result = matcher.push("x");

  ASSERT_EQ(result.released.size(), 3u);
  EXPECT_EQ(result.released[0].bytes, "ab");
  EXPECT_EQ(result.released[2].index, 2);
}

TEST(StopMatcher, LetsTheEarliestBeginningWin) {
  for (const auto& tokens :
       std::vector<std::vector<std::string>>{{"xabcd"}, {"x", "a", "b", "c", "d"}, {"xabc", "d"}})
    EXPECT_EQ(run({"bc", "abcd"}, tokens).text, "x");
  for (const auto& tokens :
       std::vector<std::vector<std::string>>{{"xabce"}, {"x", "a", "b", "c", "e"}, {"xabc", "e"}})
    EXPECT_EQ(run({"bc", "abcd"}, tokens).text, "xa");
}

TEST(StopMatcher, StopsInFinishWhereAnEarlierBeginningWasStillPossible) {
  const Outcome outcome = run({"bc", "abcd"}, {"x", "abc"});

  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.text, "xa");
}

TEST(StopMatcher, ReleasesBytesAtOnceAndTextWhenItsCharacterIsComplete) {
  StopMatcher matcher({"stop"});

  const auto first = matcher.push("\xF0\x9F");
  const auto second = matcher.push("\x98\x80!");

  ASSERT_EQ(first.released.size(), 1u);
  EXPECT_EQ(first.released[0].bytes, "\xF0\x9F");
  EXPECT_EQ(first.released[0].text, "");
  ASSERT_EQ(second.released.size(), 1u);
  EXPECT_EQ(second.released[0].bytes, "\x98\x80!");
  EXPECT_EQ(second.released[0].text, "\xF0\x9F\x98\x80!");
}

TEST(StopMatcher, GivesAnIncompleteCharacterAsTail) {
  StopMatcher matcher({});
  matcher.push("a\xE2\x82");
  std::string tail = "old";

  EXPECT_TRUE(matcher.finish(tail).empty());

  EXPECT_EQ(tail, "\xEF\xBF\xBD");
}

TEST(StopMatcher, GivesTheTailAfterAStopToo) {
  const Outcome outcome = run({"END"}, {"a\xE2", "END"});

  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.text, "a\xEF\xBF\xBD");
}

TEST(StopMatcher, PassesTokensWithoutBytesInTheirOrder) {
  const Outcome outcome = run({"stop"}, {"", "a", "", "s", "", "ay", ""});

  ASSERT_EQ(outcome.released.size(), 7u);
  for (size_t i = 0; i < 7; ++i)
    EXPECT_EQ(outcome.released[i].index, static_cast<int64_t>(i));
}

TEST(StopMatcher, IgnoresEmptyStopStrings) {
  const Outcome outcome = run({""}, {"a", "b"});

  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(outcome.text, "ab");
}

TEST(StopMatcher, AgreesWithASearchOfTheWholeText) {
  std::mt19937 random(11);
  const auto word = [&](size_t least, size_t most, std::string_view letters) {
    std::string text(least + random() % (most - least + 1), ' ');
    for (char& c : text)
      c = letters[random() % letters.size()];
    return text;
  };
  for (int round = 0; round < 20'000; ++round) {
    const std::string_view letters = round % 3 == 0 ? "ab" : round % 3 == 1 ? "abc" : "a\xC3\xA9\xF0";
    std::vector<std::string> stop(random() % 4), tokens(random() % 12);
    for (auto& s : stop)
      s = word(1, 5, letters);
    for (auto& token : tokens)
      token = word(0, 4, letters);
    const std::string all = joined(tokens);
    const size_t cut = first_match(stop, all);

    const Outcome outcome = run(stop, tokens);

    ASSERT_EQ(outcome.bytes, all.substr(0, cut));
    ASSERT_EQ(outcome.text, repaired(all.substr(0, cut)));
    ASSERT_EQ(outcome.stopped, cut != std::string::npos);
    size_t end = 0;
    for (size_t i = 0; i < outcome.released.size(); ++i) {
      ASSERT_EQ(outcome.released[i].index, static_cast<int64_t>(i));
      end += tokens[i].size();
      ASSERT_EQ(outcome.released[i].bytes,
                tokens[i].substr(0, tokens[i].size() - (end > cut ? end - cut : 0)));
    }
  }
}

TEST(StopMatcher, HoldsBackNoMoreThanItMustAndStopsAsSoonAsItIsSure) {
  std::mt19937 random(13);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stop(1 + random() % 3);
    for (auto& s : stop) {
      s.resize(1 + random() % 5);
      for (char& c : s)
        c = "ab"[random() % 2];
    }
    StopMatcher matcher(stop);
    std::string all, out;
    for (int i = 0; i < 16; ++i) {
      const std::string token(1, "abc"[random() % 3]);
      all += token;
      const auto result = matcher.push(token);
      for (const auto& released : result.released)
        out += released.bytes;

      const size_t match = first_match(stop, all), possible = first_possible(stop, all);
      ASSERT_EQ(result.stopped, match != std::string::npos && match <= possible) << all;
      ASSERT_EQ(out.size(), std::min(match, possible)) << all;
      if (result.stopped)
        break;
    }
  }
}

TEST(StopMatcher, IsLinearOnStopStringsThatAlmostMatch) {
  // 16 strings of 1 KiB that share all but their last byte with the text: a matcher that starts over at each
  // byte would compare 16 * 1024 * 10^6 bytes here.
  std::vector<std::string> stop;
  for (char last = 'b'; last < 'b' + 16; ++last)
    stop.push_back(std::string(1023, 'a') + last);
  StopMatcher matcher(stop);
  size_t released = 0;

  for (int i = 0; i < 1000; ++i)
    released += matcher.push(std::string(1000, 'a')).released.size();

  EXPECT_EQ(released, 998u); // the last 1023 bytes, that is a part of two tokens, are held
}

} // namespace
} // namespace millrace
