#include "tools/load/scenarios.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include <charconv>
#include <map>

namespace millrace::load {

std::string completion_body(int tokens, uint64_t seed) {
  return R"({"prompt":"Once upon a time","stream":true,"temperature":1,"ignore_eos":true,"max_tokens":)" +
         std::to_string(tokens) + R"(,"seed":)" + std::to_string(seed) + "}";
}

bool SequenceCheck::next(const std::string& id) {
  const size_t colon = id.find(':');
  int64_t seq = -1;
  if (colon != std::string::npos)
    std::from_chars(id.data() + colon + 1, id.data() + id.size(), seq);
  const bool good = each_ ? seq == expected_ : seq >= expected_;
  expected_ = seq + 1;
  return good;
}

asio::awaitable<void> run_completion(const Target& target, int tokens, uint64_t seed, StreamOutcome& outcome) {
  try {
    Socket socket = co_await connect(target.endpoint);
    const auto begin = Clock::now();
    auto last = begin;
    SequenceCheck check(false); // a token without a whole character has no chunk of its own
    bool done = false;
    const auto each = [&](const SseEvent& event) {
      if (event.data == "[DONE]") {
        done = true;
        return true;
      }
      if (event.data.starts_with("{\"error\"")) {
        outcome.trouble = event.data;
        return false;
      }
      if (!is_numbered(event))
        return true;
      if (!check.next(event.id)) {
        outcome.trouble = "event " + event.id + " out of its turn";
        return false;
      }
      if (outcome.tokens++ == 0)
        outcome.first_ms = milliseconds_since(begin);
      else
        outcome.gaps.add(milliseconds_since(last));
      last = Clock::now();
      return true;
    };
    Call call{.method = "POST", .target = "/v1/completions", .body = completion_body(tokens, seed), .on_event = each};
    const Answer answer = co_await fetch(socket, std::move(call));
    outcome.status = answer.status;
    outcome.complete = done && outcome.trouble.empty() && check.expected() == tokens + 1; // its end has a number, too
    if (!outcome.complete && outcome.trouble.empty())
      outcome.trouble = answer.status != 200 ? "status " + std::to_string(answer.status)
                        : done               ? "only " + std::to_string(check.expected()) + " events"
                                             : "ended without [DONE]";
  } catch (const std::exception& error) {
    outcome.trouble = error.what();
  }
}

bool tell(const std::string& what, const std::vector<StreamOutcome>& outcomes, double seconds) {
  Samples first, gaps;
  int64_t events = 0;
  size_t complete = 0;
  std::map<std::string, int> troubles;
  for (const StreamOutcome& outcome : outcomes) {
    events += outcome.tokens;
    gaps.add(outcome.gaps);
    if (outcome.tokens > 0)
      first.add(outcome.first_ms);
    if (outcome.complete)
      ++complete;
    else
      ++troubles[outcome.trouble];
  }
  say("%s: %zu of %zu complete and in order, %lld events in %.1f s (%.0f/s)", what.c_str(), complete, outcomes.size(),
      static_cast<long long>(events), seconds, static_cast<double>(events) / seconds);
  say("  first token %s", first.milliseconds().c_str());
  say("  between tokens %s", gaps.milliseconds().c_str());
  for (const auto& [trouble, count] : troubles)
    say("  %d x %s", count, trouble.c_str());
  return complete == outcomes.size();
}

void tell_usage(const Target& target, const ProcessUsage& before, const ProcessUsage& after, double seconds) {
  if (target.pid > 0)
    say("  server: %.0f MiB resident (%+.1f), %.0f %% of a core, %lld descriptors",
        static_cast<double>(after.resident_bytes) / (1 << 20),
        static_cast<double>(after.resident_bytes - before.resident_bytes) / (1 << 20),
        100 * (after.cpu_seconds - before.cpu_seconds) / seconds, static_cast<long long>(after.descriptors));
}

bool run_streams(const Target& target, const StreamsOptions& options) {
  asio::io_context loop;
  std::vector<StreamOutcome> outcomes(static_cast<size_t>(options.streams));
  const ProcessUsage before = usage_of(target.pid);
  const auto begin = Clock::now();
  for (size_t i = 0; i < outcomes.size(); ++i)
    co_spawn(loop, run_completion(target, options.tokens, i, outcomes[i]), asio::detached);
  loop.run();
  const double seconds = milliseconds_since(begin) / 1000;
  const bool complete = tell(std::to_string(options.streams) + " streams at once", outcomes, seconds);
  tell_usage(target, before, usage_of(target.pid), seconds);
  return complete;
}

} // namespace millrace::load
