// millrace_load: bounded load against a server on this machine.

#include "tools/load/scenarios.hpp"

#include <CLI/CLI.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <cstdio>

namespace millrace::load {
namespace {

struct Options {
  std::string url = "http://127.0.0.1:8080";
  int pid = 0;
  StreamsOptions streams;
  IdleOptions idle;
  ReadersOptions readers;
  SoakOptions soak;
  PublishOptions publish;
};

void allow_many_descriptors() {
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Asks the server which model it runs.
Target find_target(const Options& options) {
  Target target{.endpoint = parse_endpoint(options.url), .pid = options.pid};
  asio::io_context loop;
  const auto ask = [&]() -> asio::awaitable<std::string> {
    Socket socket = co_await connect(target.endpoint);
    Call call{.method = "GET", .target = "/v1/models"};
    co_return (co_await fetch(socket, std::move(call))).body;
  };
  auto answer = co_spawn(loop, ask(), asio::use_future);
  loop.run();
  const auto models = nlohmann::json::parse(answer.get(), nullptr, false);
  target.model = models.is_object() ? models["data"][0].value("id", "?") : "?";
  say("model %s at %s", target.model.c_str(), options.url.c_str());
  return target;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App program("Bounded load against `millrace serve` on this machine, or on its publishing path alone");
  program.require_subcommand(1);
  program.add_option("--url", options.url, "HTTP door of the server; loopback only")->capture_default_str();
  program.add_option("--pid", options.pid, "Process of the server: tells its memory and CPU time");

  auto& streams = *program.add_subcommand("streams", "Many streams at once");
  streams.add_option("--streams", options.streams.streams)->check(CLI::Range(1, 4000))->capture_default_str();
  streams.add_option("--tokens", options.streams.tokens)->check(CLI::Range(1, 4096))->capture_default_str();

  auto& idle = *program.add_subcommand("idle", "Idle connections, and what they cost the streams beside them");
  idle.add_option("--connections", options.idle.connections)->check(CLI::Range(100, 50'000))->capture_default_str();
  idle.add_option("--streams", options.idle.streams)->check(CLI::Range(1, 1000))->capture_default_str();
  idle.add_option("--tokens", options.idle.tokens)->check(CLI::Range(1, 4096))->capture_default_str();

  auto& readers = *program.add_subcommand("readers", "Many readers of one stream, then also some that stop reading");
  readers.add_option("--readers", options.readers.readers)->check(CLI::Range(1, 4000))->capture_default_str();
  readers.add_option("--stalled", options.readers.stalled)->check(CLI::Range(0, 1000))->capture_default_str();
  readers.add_option("--tokens", options.readers.tokens)->check(CLI::Range(1, 4096))->capture_default_str();

  auto& soak = *program.add_subcommand("soak", "Clients that come, leave and come back, for a long time");
  soak.add_option("--minutes", options.soak.minutes)->check(CLI::Range(0.1, 240.0))->capture_default_str();
  soak.add_option("--streams", options.soak.streams)->check(CLI::Range(1, 1000))->capture_default_str();
  soak.add_option("--tokens", options.soak.tokens)->check(CLI::Range(1, 4096))->capture_default_str();

  auto& publish = *program.add_subcommand("publish", "The publishing path without model, beside a bare XPUB socket");
  publish.add_option("--subscribers", options.publish.subscribers)->check(CLI::Range(1, 100))->capture_default_str();
  publish.add_option("--events", options.publish.events)->check(CLI::Range(1'000, 100'000'000))->capture_default_str();
  publish.add_option("--streams", options.publish.streams)->check(CLI::Range(1, 1000))->capture_default_str();
  publish.add_option("--rounds", options.publish.rounds)->check(CLI::Range(1, 100))->capture_default_str();

  CLI11_PARSE(program, argc, argv);
  allow_many_descriptors();
  bool good = false;
  if (publish.parsed()) {
    say("no model: events are made up");
    good = run_publish(options.publish);
  } else {
    const Target target = find_target(options);
    good = streams.parsed()   ? run_streams(target, options.streams)
           : idle.parsed()    ? run_idle(target, options.idle)
           : readers.parsed() ? run_readers(target, options.readers)
                              : run_soak(target, options.soak);
  }
  return good ? 0 : 1;
}

} // namespace
} // namespace millrace::load

int main(int argc, char** argv) {
  try {
    return millrace::load::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millrace_load: %s\n", error.what());
    return 2;
  }
}
