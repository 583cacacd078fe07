#pragma once

// The server's log: a line for each thing that happened, as key=value or as JSON. What clients send is never
// written as it came: every value is cut and escaped, so no request can forge a line or reach a terminal.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace {

enum class LogFormat { text, json };
enum class LogLevel { debug, info, warning, error, off };

struct LogOptions {
  LogFormat format = LogFormat::text;
  LogLevel level = LogLevel::info; // the least that is written
  int descriptor = 2;              // written to, not owned
  size_t queue = 8192;             // lines that wait for it; beyond it the oldest go
};

struct LogField {
  std::string_view name; // ours: letters, digits and _
  std::variant<int64_t, double, std::string_view> value;
  size_t max_bytes = 256; // of a text; longer ones are cut
};

/// Thread-safe, and never waits for whoever reads it: a full pipe costs lines, and a line tells how many.
class Log {
public:
  /// Starts a thread.
  explicit Log(const LogOptions& options);
  /// Waits a fifth of a second at most for a descriptor that takes nothing.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Empty texts are left out.
  void write(LogLevel level, std::string_view event, const std::vector<LogField>& fields = {});
  bool writes(LogLevel level) const;
  /// Lines that were lost.
  uint64_t lost() const;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
