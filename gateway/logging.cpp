#include "gateway/logging.hpp"

#include <nlohmann/json.hpp>
#include <spdlog/async_logger.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

namespace millrace {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = 4096; // PIPE_BUF: a pipe that is ready takes so many without waiting
constexpr auto kLastWait = 200ms;

/// Writes to a descriptor that others share, so it must not become non-blocking: it is asked whether it is
/// ready before each piece. Belongs to the log's thread, but for stop() and lost().
class DescriptorSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
  /// `overrun` counts the lines that never came here; `lost_line` is what tells of a number of lost ones.
  DescriptorSink(int descriptor, std::function<uint64_t()> overrun,
                 std::function<std::string(uint64_t)> lost_line)
      : descriptor_(descriptor), overrun_(std::move(overrun)), lost_line_(std::move(lost_line)) {}

  /// From now on waits kLastWait in all, then loses what is left.
  void stop() {
    deadline_ = (Clock::now() + kLastWait).time_since_epoch().count();
    stopping_ = true;
  }
  uint64_t lost() const { return overrun_() + failed_; }

protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (lost() > told_ && wait_until_ready()) {
      const uint64_t now = lost();
      spdlog::details::log_msg notice = message;
      const std::string text = lost_line_(now - told_);
      notice.level = spdlog::level::warn;
      notice.payload = text;
      told_ = now;
      failed_ += !write(notice);
    }
    failed_ += !write(message);
  }
  void flush_() override {}

private:
  bool expired() const { return stopping_ && Clock::now().time_since_epoch().count() >= deadline_; }

  bool wait_until_ready() {
    pollfd item{descriptor_, POLLOUT, 0};
    while (!expired())
      if (::poll(&item, 1, 50) > 0)
        return true; // also if it is broken, which write() then says
    return false;
  }

  bool write(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string_view left(line.data(), line.size());
    while (!left.empty() && wait_until_ready()) {
      const ssize_t written = ::write(descriptor_, left.data(), std::min(left.size(), kPieceBytes));
      if (written > 0)
        left.remove_prefix(static_cast<size_t>(written));
      else if (errno != EINTR && errno != EAGAIN)
        return false;
    }
    return left.empty();
  }

  const int descriptor_;
  const std::function<uint64_t()> overrun_;
  const std::function<std::string(uint64_t)> lost_line_;
  uint64_t told_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<Clock::rep> deadline_{0};
  std::atomic<uint64_t> failed_{0};
};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
  case LogLevel::debug: return spdlog::level::debug;
  case LogLevel::info: return spdlog::level::info;
  case LogLevel::warning: return spdlog::level::warn;
  case LogLevel::error: return spdlog::level::err;
  case LogLevel::off: break;
  }
  return spdlog::level::off;
}

/// A JSON string of ASCII alone: no control, no direction mark and no terminal sequence gets through.
std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Whether text stands for itself after key=.
bool is_plain(std::string_view text) {
  constexpr std::string_view kMarks = "._-:/@,+";
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != kMarks.npos;
  });
}

std::string to_text(const LogField& field, LogFormat format) {
  if (const auto* number = std::get_if<int64_t>(&field.value))
    return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&field.value))
    return std::isfinite(*number) ? nlohmann::json(std::round(*number * 1e3) / 1e3).dump() : "null";
  const std::string_view whole = std::get<std::string_view>(field.value);
  std::string text(whole.substr(0, field.max_bytes));
  if (text.size() < whole.size()) {
    while (!text.empty() && (static_cast<unsigned char>(whole[text.size()]) & 0xc0) == 0x80)
      text.pop_back(); // not in the middle of a character
    text += "...";
  }
  return format == LogFormat::text && is_plain(text) ? text : json_string(text);
}

} // namespace

struct Log::State {
  explicit State(const LogOptions& options)
      : format(options.format),
        pool(std::make_shared<spdlog::details::thread_pool>(std::max<size_t>(options.queue, 1), 1)),
        sink(std::make_shared<DescriptorSink>(
            options.descriptor, [queue = pool.get()] { return queue->overrun_counter(); },
            [this](uint64_t count) {
              return line("lines_lost", {{"count", static_cast<int64_t>(count)}});
            })),
        logger(std::make_shared<spdlog::async_logger>("millrace", sink, pool,
                                                      spdlog::async_overflow_policy::overrun_oldest)) {
    const char* pattern = format == LogFormat::json
                              ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","event":%v})"
                              : "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
    logger->set_formatter(
        std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc, "\n"));
    logger->set_level(to_spdlog(options.level));
  }
  ~State() {
    sink->stop();
    logger.reset();
    pool.reset(); // joins
  }

  std::string line(std::string_view event, const std::vector<LogField>& fields) const {
    const bool json = format == LogFormat::json;
    std::string text = json ? json_string(event) : std::string(event);
    for (const LogField& field : fields) {
      if (const auto* value = std::get_if<std::string_view>(&field.value); value && value->empty())
        continue;
      text += json ? ",\"" : " ";
      text += field.name;
      text += json ? "\":" : "=";
      text += to_text(field, format);
    }
    return text;
  }

  const LogFormat format;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<DescriptorSink> sink;
  std::shared_ptr<spdlog::async_logger> logger;
};

Log::Log(const LogOptions& options) : state_(std::make_unique<State>(options)) {}
Log::~Log() = default;

void Log::write(LogLevel level, std::string_view event, const std::vector<LogField>& fields) {
  if (!writes(level))
    return;
  state_->logger->log(to_spdlog(level), spdlog::string_view_t(state_->line(event, fields)));
}

bool Log::writes(LogLevel level) const {
  return level != LogLevel::off && state_->logger->should_log(to_spdlog(level));
}

uint64_t Log::lost() const {
  return state_->sink->lost();
}

} // namespace millrace
