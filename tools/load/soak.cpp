#include "tools/load/scenarios.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <map>
#include <random>

namespace millrace::load {
namespace {

struct Tally {
  int64_t whole = 0;     // streams read from end to end
  int64_t rejoined = 0;  // left in the middle, then read on from there
  int64_t abandoned = 0; // left for good
  int64_t busy = 0;      // refused with 429
  int64_t events = 0;
  std::map<std::string, int> troubles;
};

/// Reads numbered events from `check` on until `leave_at` events were seen (-1: to the end). True if the end came.
asio::awaitable<bool> read_some(Socket& socket, Call call, int64_t leave_at, SequenceCheck& check, Tally& tally, std::string& stream,
                                int& status) {
  bool ended = false;
  int64_t seen = 0;
  call.on_head = [&](const Answer& answer) {
    status = answer.status;
    if (!answer.stream.empty())
      stream = answer.stream;
  };
  call.on_event = [&](const SseEvent& event) {
    ended = ended || event.data == "[DONE]" || event.data.find("\"type\":\"done\"") != std::string::npos;
    if (event.data.starts_with("{\"error\""))
      ++tally.troubles[event.data];
    if (!is_numbered(event))
      return true;
    if (!check.next(event.id)) {
      ++tally.troubles["an event out of its turn"];
      return false;
    }
    ++tally.events;
    return ++seen != leave_at;
  };
  co_await fetch(socket, std::move(call));
  co_return ended;
}

/// One client after the other, each with a mind of its own, until the time is over.
asio::awaitable<void> run_clients(const Target& target, int tokens, uint64_t seed, Clock::time_point end, Tally& tally) {
  std::mt19937_64 random(seed);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (Clock::now() < end) {
    try {
      const uint64_t mind = random() % 4; // two of four read to the end
      const int64_t leave_at = mind < 2 ? -1 : static_cast<int64_t>(1 + random() % static_cast<uint64_t>(tokens));
      Socket socket = co_await connect(target.endpoint);
      SequenceCheck check(false);
      std::string stream;
      int status = 0;
      // Who means to come back says so: else a stream ends with its reader.
      std::string body = completion_body(tokens, random());
      if (mind == 2)
        body.insert(1, R"("survive_disconnect":true,)");
      Call call{.method = "POST", .target = "/v1/completions", .body = std::move(body)};
      const bool ended = co_await read_some(socket, std::move(call), leave_at, check, tally, stream, status);
      if (status == 429) {
        ++tally.busy;
        timer.expires_after(std::chrono::milliseconds(200));
        co_await timer.async_wait(asio::use_awaitable);
      } else if (status != 200) {
        ++tally.troubles["status " + std::to_string(status)];
      } else if (ended) {
        ++tally.whole;
        if (check.expected() != tokens + 1)
          ++tally.troubles["a stream that is not whole"];
      } else if (mind == 2) {
        Socket again = co_await connect(target.endpoint);
        Call rest{.method = "GET", .target = "/v1/streams/" + stream + "?from_seq=" + std::to_string(check.expected())};
        if (co_await read_some(again, std::move(rest), -1, check, tally, stream, status) && check.expected() == tokens + 1)
          ++tally.rejoined;
        else
          ++tally.troubles["a rejoined stream without an end, status " + std::to_string(status)];
      } else {
        ++tally.abandoned;
      }
    } catch (const std::exception& error) {
      ++tally.troubles[error.what()];
    }
  }
}

asio::awaitable<void> watch_server(const Target& target, Clock::time_point begin, Clock::time_point end, const Tally& tally,
                                   std::vector<std::pair<double, double>>& memory) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (Clock::now() < end) {
    timer.expires_after(std::min<Clock::duration>(std::chrono::seconds(60), end - Clock::now()));
    co_await timer.async_wait(asio::use_awaitable);
    const ProcessUsage usage = usage_of(target.pid);
    const double minutes = milliseconds_since(begin) / 60'000;
    memory.emplace_back(minutes, static_cast<double>(usage.resident_bytes) / (1 << 20));
    say("  %5.1f min: %lld whole, %lld rejoined, %lld abandoned, %lld busy, %lld events; %.1f MiB, %lld descriptors", minutes,
        static_cast<long long>(tally.whole), static_cast<long long>(tally.rejoined), static_cast<long long>(tally.abandoned),
        static_cast<long long>(tally.busy), static_cast<long long>(tally.events), memory.back().second,
        static_cast<long long>(usage.descriptors));
  }
}

/// MiB per minute of the line that fits best.
double slope(const std::vector<std::pair<double, double>>& points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [minute, mebibytes] : points) {
    n += 1;
    x += minute;
    y += mebibytes;
    xx += minute * minute;
    xy += minute * mebibytes;
  }
  const double spread = n * xx - x * x;
  return spread > 0 ? (n * xy - x * y) / spread : 0;
}

} // namespace

bool run_soak(const Target& target, const SoakOptions& options) {
  asio::io_context loop;
  Tally tally;
  std::vector<std::pair<double, double>> memory;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(60 * options.minutes));
  for (int i = 0; i < options.streams; ++i)
    co_spawn(loop, run_clients(target, options.tokens, static_cast<uint64_t>(i) + 1, end, tally), asio::detached);
  co_spawn(loop, watch_server(target, begin, end, tally, memory), asio::detached);
  loop.run();

  say("soak of %.1f minutes: %lld streams whole, %lld rejoined, %lld abandoned, %lld events, none lost or doubled: %s", options.minutes,
      static_cast<long long>(tally.whole), static_cast<long long>(tally.rejoined), static_cast<long long>(tally.abandoned),
      static_cast<long long>(tally.events), tally.troubles.empty() ? "yes" : "NO");
  for (const auto& [trouble, count] : tally.troubles)
    say("  %d x %s", count, trouble.c_str());
  if (memory.size() > 2) {
    const std::vector second_half(memory.begin() + static_cast<ptrdiff_t>(memory.size() / 2), memory.end());
    say("  memory: %.1f MiB after the first minute, %.1f at the end; %+.3f MiB a minute over the second half",
        memory.front().second, memory.back().second, slope(second_half));
  }
  return tally.troubles.empty() && tally.whole > 0;
}

} // namespace millrace::load
