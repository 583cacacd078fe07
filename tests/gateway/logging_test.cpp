#include "gateway/logging.hpp"
#include "messages/report.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A pipe whose other end reads when the test says so.
class Pipe {
public:
  Pipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
  }
  ~Pipe() {
    ::close(ends_[0]);
    close_writer();
  }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0)
      ::close(ends_[1]);
    ends_[1] = -1;
  }
  void fill() {
    const int flags = ::fcntl(ends_[1], F_GETFL);
    ::fcntl(ends_[1], F_SETFL, flags | O_NONBLOCK);
    while (::write(ends_[1], "x", 1) == 1) {
    }
    ::fcntl(ends_[1], F_SETFL, flags);
  }
  /// All lines, once the writer is closed.
  std::vector<std::string> lines() {
    close_writer();
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(ends_[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    std::vector<std::string> lines;
    for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
      lines.push_back(text.substr(at, end - at));
    return lines;
  }
  std::string read_some(size_t bytes) {
    std::string text(bytes, '\0');
    const ssize_t got = ::read(ends_[0], text.data(), bytes);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

private:
  int ends_[2] = {-1, -1};
};

std::vector<std::string> written(LogOptions options, const std::function<void(Log&)>& use) {
  Pipe pipe;
  options.descriptor = pipe.writer();
  {
    Log log(options);
    use(log);
  }
  return pipe.lines();
}

TEST(LogTest, WritesALineOfWordsForPeople) {
  const auto lines = written({}, [](Log& log) {
    log.write(LogLevel::info, "finished",
              {{"stream", "0a1b2c3d"},
               {"tokens", int64_t{12}},
               {"ms", 1.23456},
               {"nothing", ""},
               {"words", "a b"}});
  });

  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(24), " info finished stream=0a1b2c3d tokens=12 ms=1.235 words=\"a b\"");
  EXPECT_EQ(lines[0][10], 'T');
  EXPECT_EQ(lines[0][23], 'Z');
}

TEST(LogTest, WritesJsonForMachines) {
  const auto lines = written({.format = LogFormat::json}, [](Log& log) {
    log.write(LogLevel::warning, "refused", {{"code", "busy"}, {"tokens", int64_t{12}}, {"ms", 0.5}});
  });

  ASSERT_EQ(lines.size(), 1u);
  const auto line = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(line["event"], "refused");
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["code"], "busy");
  EXPECT_EQ(line["tokens"], 12);
  EXPECT_EQ(line["ms"], 0.5);
  EXPECT_EQ(line["time"].get<std::string>().size(), 24u);
}

TEST(LogTest, LetsNoValueForgeALineOrReachATerminal) {
  const std::string evil =
      "x\n2026-01-01T00:00:00.000Z error forged\r\x1b[31m\x07\xff\xc2\x9b\xe2\x80\xae\" y";
  for (const LogFormat format : {LogFormat::text, LogFormat::json}) {
    const auto lines = written({.format = format}, [&](Log& log) {
      log.write(LogLevel::info, "opened", {{"request_id", evil}});
    });

    ASSERT_EQ(lines.size(), 1u);
    for (const char c : lines[0])
      EXPECT_TRUE(c >= ' ' && c < 0x7f) << static_cast<int>(c);
    if (format == LogFormat::json) {
      EXPECT_EQ(nlohmann::json::parse(lines[0]).size(), 4u);
    }
  }
}

TEST(LogTest, TakesABraceForABrace) {
  const auto lines = written({}, [](Log& log) {
    log.write(LogLevel::info, "opened", {{"id", "{}{0}%v"}, {"b", "%n{"}});
  });

  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].ends_with("opened id=\"{}{0}%v\" b=\"%n{\"")) << lines[0];
}

TEST(LogTest, CutsALongValueBetweenCharacters) {
  const auto lines = written({.format = LogFormat::json}, [](Log& log) {
    log.write(LogLevel::info, "opened", {{"a", "aaa\xc3\xa4\xc3\xa4", 4}, {"b", "aaaa", 4}});
  });

  const auto line = nlohmann::json::parse(lines.at(0));
  EXPECT_EQ(line["a"], "aaa...");
  EXPECT_EQ(line["b"], "aaaa");
}

TEST(LogTest, WritesOnlyWhatIsWorthIt) {
  const auto lines = written({.level = LogLevel::warning}, [](Log& log) {
    EXPECT_FALSE(log.writes(LogLevel::info));
    log.write(LogLevel::info, "opened");
    log.write(LogLevel::error, "device_lost");
  });
  const auto none =
      written({.level = LogLevel::off}, [](Log& log) { log.write(LogLevel::error, "device_lost"); });

  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].ends_with(" error device_lost"));
  EXPECT_TRUE(none.empty());
}

TEST(LogTest, WaitsForNoReader) {
  Pipe pipe;
  pipe.fill();
  const auto begin = Clock::now();
  {
    Log log({.descriptor = pipe.writer(), .queue = 16});
    for (int i = 0; i < 10'000; ++i)
      log.write(LogLevel::info, "opened", {{"number", int64_t{i}}});
    EXPECT_GE(log.lost(), 9'900u);
  }
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(LogTest, TellsAReaderThatSleptHowManyLinesWereLost) {
  Pipe pipe;
  pipe.fill();
  std::string text;
  {
    Log log({.descriptor = pipe.writer(), .queue = 4});
    for (int i = 0; i < 100; ++i)
      log.write(LogLevel::info, "opened", {{"number", int64_t{i}}});
    while (text.find("number=99\n") == text.npos)
      text += pipe.read_some(4096);
  }

  EXPECT_NE(text.find("lines_lost count=9"), text.npos);
}

TEST(ReportTest, GoesToWhoeverAskedForIt) {
  std::string told;
  set_reporter([&](std::string_view part, std::string_view text) {
    told = std::string(part) + '|' + std::string(text);
  });
  report("journal", "the disk is full");
  set_reporter({});

  EXPECT_EQ(told, "journal|the disk is full");
}

} // namespace
} // namespace millrace::test
