#include "tools/load/scenarios.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

namespace millrace::load {
namespace {

struct IdleConnections {
  std::vector<Socket> sockets;
  int failed = 0;
};

/// Each makes one request, so that it is a client that stays and not one that never spoke.
asio::awaitable<void> open_some(const Target& target, int count, IdleConnections& idle) {
  for (int i = 0; i < count; ++i) {
    try {
      Socket socket = co_await connect(target.endpoint);
      Call call{.method = "GET", .target = "/ready"};
      if ((co_await fetch(socket, std::move(call))).status == 200)
        idle.sockets.push_back(std::move(socket));
      else
        ++idle.failed;
    } catch (const std::exception&) {
      ++idle.failed;
    }
  }
}

bool run_group(const Target& target, const IdleOptions& options, const std::string& what) {
  asio::io_context loop;
  std::vector<StreamOutcome> outcomes(static_cast<size_t>(options.streams));
  const auto begin = Clock::now();
  for (size_t i = 0; i < outcomes.size(); ++i)
    co_spawn(loop, run_completion(target, options.tokens, i, outcomes[i]), asio::detached);
  loop.run();
  return tell(what, outcomes, milliseconds_since(begin) / 1000);
}

} // namespace

bool run_idle(const Target& target, const IdleOptions& options) {
  bool good = run_group(target, options, "alone");

  constexpr int kAtOnce = 100;
  asio::io_context loop;
  IdleConnections idle;
  const ProcessUsage before = usage_of(target.pid);
  const auto begin = Clock::now();
  for (int i = 0; i < kAtOnce; ++i)
    co_spawn(loop, open_some(target, options.connections / kAtOnce, idle), asio::detached);
  loop.run();
  const double seconds = milliseconds_since(begin) / 1000;
  const ProcessUsage opened = usage_of(target.pid);
  say("%zu idle connections opened in %.1f s, %d failed", idle.sockets.size(), seconds, idle.failed);
  tell_usage(target, before, opened, seconds);
  if (target.pid > 0 && !idle.sockets.empty())
    say("  %.1f KiB of the server's memory each",
        static_cast<double>(opened.resident_bytes - before.resident_bytes) / 1024 / static_cast<double>(idle.sockets.size()));

  good = run_group(target, options, "beside them") && good;

  size_t alive = 0;
  asio::io_context again;
  for (Socket& socket : idle.sockets) {
    boost::system::error_code error;
    socket.non_blocking(true, error);
    char byte;
    socket.read_some(asio::buffer(&byte, 1), error); // a closed one says so, an idle one has nothing to say
    alive += error == asio::error::would_block;
  }
  say("%zu of them are still open", alive);
  return good && idle.failed == 0 && alive == idle.sockets.size();
}

} // namespace millrace::load
