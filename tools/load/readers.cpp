#include "tools/load/scenarios.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <functional>

namespace millrace::load {
namespace {

struct Reader {
  std::string text; // all data of numbered events, to be compared
  StreamOutcome outcome;
};

asio::awaitable<void> follow(const Target& target, std::string stream, Reader& reader) {
  StreamOutcome& outcome = reader.outcome;
  try {
    Socket socket = co_await connect(target.endpoint);
    const auto begin = Clock::now();
    auto last = begin;
    SequenceCheck check;
    bool done = false;
    const auto each = [&](const SseEvent& event) {
      if (event.data.find("\"type\":\"done\"") != std::string::npos)
        done = true;
      if (!is_numbered(event))
        return true;
      if (!check.next(event.id)) {
        outcome.trouble = "event " + event.id + " out of its turn";
        return false;
      }
      reader.text += event.data;
      if (outcome.tokens++ == 0)
        outcome.first_ms = milliseconds_since(begin);
      else
        outcome.gaps.add(milliseconds_since(last));
      last = Clock::now();
      return true;
    };
    Call call{.method = "GET", .target = "/v1/streams/" + stream + "?from_seq=0", .on_event = each};
    const Answer answer = co_await fetch(socket, std::move(call));
    outcome.status = answer.status;
    outcome.complete = done && outcome.trouble.empty();
    if (!outcome.complete && outcome.trouble.empty())
      outcome.trouble = "status " + std::to_string(outcome.status) + ", ended without done";
  } catch (const std::exception& error) {
    outcome.trouble = error.what();
  }
}

/// Reads one piece of the stream and then nothing, until it is told to leave.
asio::awaitable<void> stall(const Target& target, std::string stream, const bool& over) {
  try {
    Socket socket = co_await connect(target.endpoint);
    socket.set_option(asio::socket_base::receive_buffer_size(4096));
    Call call{.method = "GET", .target = "/v1/streams/" + stream + "?from_seq=0", .on_event = [](const SseEvent&) { return false; }};
    co_await fetch(socket, std::move(call));
    asio::steady_timer timer(co_await asio::this_coro::executor);
    while (!over) {
      timer.expires_after(std::chrono::milliseconds(50));
      co_await timer.async_wait(asio::use_awaitable);
    }
  } catch (const std::exception&) {
  }
}

/// Opens the stream, tells its id as soon as the head of the answer is there, and reads it to its end.
asio::awaitable<void> open_stream(const Target& target, int tokens, uint64_t seed, std::function<void(std::string)> opened,
                                  bool& failed) {
  try {
    Socket socket = co_await connect(target.endpoint);
    const auto on_head = [&](const Answer& answer) {
      if (!answer.stream.empty())
        opened(answer.stream);
    };
    Call call{.method = "POST",
              .target = "/v1/completions",
              .body = completion_body(tokens, seed),
              .on_head = on_head,
              .on_event = [](const SseEvent&) { return true; }};
    const Answer answer = co_await fetch(socket, std::move(call));
    failed = answer.status != 200 || answer.stream.empty();
  } catch (const std::exception& error) {
    say("the stream: %s", error.what());
    failed = true;
  }
}

bool run_once(const Target& target, int readers, int stalled, int tokens, const std::string& what) {
  asio::io_context loop;
  std::vector<Reader> all(static_cast<size_t>(readers));
  bool failed = false, over = false;
  size_t ended = 0;
  const ProcessUsage before = usage_of(target.pid);
  const auto begin = Clock::now();
  co_spawn(loop,
           open_stream(
               target, tokens, 7,
               [&](std::string stream) {
                 for (int i = 0; i < stalled; ++i)
                   co_spawn(loop, stall(target, stream, over), asio::detached);
                 for (Reader& reader : all)
                   co_spawn(loop, follow(target, stream, reader), [&](std::exception_ptr) { over = ++ended == all.size(); });
               },
               failed),
           asio::detached);
  loop.run();
  const double seconds = milliseconds_since(begin) / 1000;

  std::vector<StreamOutcome> outcomes;
  bool equal = true;
  for (const Reader& reader : all) {
    outcomes.push_back(reader.outcome);
    equal = equal && reader.text == all.front().text;
  }
  const bool complete = tell(what, outcomes, seconds);
  tell_usage(target, before, usage_of(target.pid), seconds);
  say("  all read the same: %s", equal ? "yes" : "NO");
  return complete && equal && !failed;
}

} // namespace

bool run_readers(const Target& target, const ReadersOptions& options) {
  bool good = run_once(target, 1, 0, options.tokens, "one reader of a stream");
  good = run_once(target, options.readers, 0, options.tokens, std::to_string(options.readers) + " readers of a stream") && good;
  return run_once(target, options.readers, options.stalled, options.tokens,
                  "and " + std::to_string(options.stalled) + " more that stopped reading") &&
         good;
}

} // namespace millrace::load
