#include "cli/top_view.hpp"

#include "cli/output.hpp"

#include <algorithm>
#include <string_view>

namespace millrace {
namespace {

/// Printable ASCII: nothing of what a server sends moves a cursor.
std::string harmless(std::string_view text, size_t width) {
  std::string plain(text.substr(0, width));
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return plain;
}

std::string duration(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, 1e15));
  if (whole >= 86'400)
    return format("%lldd %02lldh", whole / 86'400, whole / 3'600 % 24);
  if (whole >= 3'600)
    return format("%lldh %02lldm", whole / 3'600, whole / 60 % 60);
  if (whole >= 60)
    return format("%lldm %02llds", whole / 60, whole % 60);
  return format("%.1fs", std::clamp(seconds, 0.0, 60.0));
}

std::string size(int64_t bytes) {
  if (bytes >= 1 << 20)
    return format("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return format("%.1f KiB", static_cast<double>(bytes) / 1024);
}

/// "-" of nothing.
std::string percentage(int64_t part, int64_t whole) {
  return whole > 0 ? format("%.0f %%", 100 * static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

std::string bar(double part, size_t width) {
  const auto full = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(width) + 0.5);
  return '[' + std::string(full, '#') + std::string(width - full, '.') + ']';
}

/// Change of a total in a second.
class Rates {
public:
  Rates(const StatsSample& now, const std::optional<StatsSample>& before)
      : now_(now), before_(before),
        seconds_(before ? std::chrono::duration<double>(now.when - before->when).count() : 0),
        same_process_(before && before->stats.uptime_seconds <= now.stats.uptime_seconds) {}

  template <class T> std::optional<double> of(T ServerStats::*total) const {
    if (!same_process_ || seconds_ <= 0 || now_.stats.*total < before_->stats.*total)
      return std::nullopt;
    return static_cast<double>(now_.stats.*total - before_->stats.*total) / seconds_;
  }
  template <class T> std::string text(T ServerStats::*total, double scale = 1, const char* unit = "") const {
    const auto rate = of(total);
    return rate ? format("%.1f%s", *rate * scale, unit) : "-";
  }

private:
  const StatsSample& now_;
  const std::optional<StatsSample>& before_;
  double seconds_;
  bool same_process_;
};

std::string row(const RequestStats& request) {
  return format("%-9s %-9s %2d %6d/%-6d %9lld %9.1f  %s", harmless(request.stream, 8).c_str(),
                harmless(request.phase, 9).c_str(), request.choices, request.processed_tokens,
                request.prompt_tokens, static_cast<long long>(request.generated_tokens),
                request.tokens_per_second, duration(request.age_ms / 1e3).c_str());
}

} // namespace

std::vector<std::string> top_lines(const StatsSample& now, const std::optional<StatsSample>& before) {
  const ServerStats& s = now.stats;
  const Rates rates(now, before);
  const double used = s.kv_blocks_total > 0 ? double(s.kv_blocks_used) / s.kv_blocks_total : 0;
  const auto count = [](int64_t number) { return static_cast<long long>(number); };

  std::vector<std::string> lines = {
      format("millrace %s   %s on %s   %s   up %s", harmless(s.version, 20).c_str(),
             harmless(s.model, 40).c_str(), harmless(s.device, 40).c_str(), harmless(s.state, 12).c_str(),
             duration(s.uptime_seconds).c_str()),
      format("tokens/s  generated %s   prompt %s   passes/s %s   device busy %s",
             rates.text(&ServerStats::generated_tokens).c_str(),
             rates.text(&ServerStats::prompt_tokens).c_str(), rates.text(&ServerStats::passes).c_str(),
             rates.text(&ServerStats::device_busy_seconds, 100, " %").c_str()),
      format("choices   running %d   waiting %d   prompt tokens queued %lld", s.running, s.waiting,
             count(s.queued_tokens)),
      format("KV cache  %s %d of %d blocks, %.0f %%", bar(used, 30).c_str(), s.kv_blocks_used,
             s.kv_blocks_total, 100 * used),
      format("prefixes  %d blocks cached   hit rate %s   evicted %lld   preempted %lld   yielded %lld",
             s.scheduler.kv_blocks_cached, percentage(s.scheduler.cache_hits, s.scheduler.cache_queries).c_str(),
             count(s.scheduler.cache_evictions), count(s.scheduler.preempted), count(s.scheduler.yielded)),
      format("log       %lld streams, %s   subscriptions %lld   HTTP connections %lld", count(s.log_streams),
             size(s.log_bytes).c_str(), count(s.subscriptions), count(s.http_connections)),
      format("total     finished %lld   rejected %lld   replayed %lld   lagging %lld   restarts %lld",
             count(s.finished), count(s.rejected), count(s.replays), count(s.lagging), count(s.restarts)),
      "",
      "STREAM    PHASE     CH        PROMPT    TOKENS     TOK/S  AGE",
  };
  for (const RequestStats& request : s.requests)
    lines.push_back(row(request));
  return lines;
}

std::string top_screen(const std::vector<std::string>& lines, size_t rows, size_t columns) {
  std::string text = "\x1b[H";
  const size_t shown = std::min(lines.size(), std::max<size_t>(rows, 1));
  for (size_t i = 0; i < shown; ++i) {
    text += lines[i].substr(0, columns);
    text += "\x1b[K"; // what an earlier, longer line left
    if (i + 1 < shown)
      text += "\r\n";
  }
  return text + "\x1b[J";
}

} // namespace millrace
