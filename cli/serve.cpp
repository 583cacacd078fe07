// serve: a model behind its doors, until a signal ends it.

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/output.hpp"
#include "cli/serve_options.hpp"
#include "cli/server.hpp"
#include "cli/signals.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <sys/resource.h>

namespace millrace {
namespace {

/// Read to measure the memory's bandwidth; larger than any cache.
constexpr size_t kProbeBytes = size_t{1} << 30;

constexpr const char* kExamples = R"(Examples:
  millrace serve                          the built-in model on loopback: ports 5555, 5556 and, of HTTP, 8080
  millrace serve -m model.gguf --port 0   free ports; stdout tells which
  /usr/bin/python3 examples/subscribe.py "Once upon a time"
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time"}'
  millrace serve --http-address 0.0.0.0 --allow-remote --api-keys keys.txt --tls-cert cert.pem --tls-key key.pem

Prints "requests ENDPOINT", "events ENDPOINT", "http URL" and, once it serves, "ready". SIGTERM or Ctrl-C refuses new
requests and lets the running ones end; a second one ends at once. Ends with code 1 when the model's actors
died too often to go on.)";

/// How often the server was asked to stop: once to drain, twice to end now. A pipeline that died asks, too.
class StopRequests {
public:
  void add() {
    {
      std::lock_guard lock(mutex_);
      ++count_;
    }
    changed_.notify_all();
  }
  void add_death() {
    {
      std::lock_guard lock(mutex_);
      died_ = true;
    }
    changed_.notify_all();
  }
  void wait_for_first() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ > 0 || died_; });
  }
  bool impatient() const {
    std::lock_guard lock(mutex_);
    return count_ > 1;
  }
  bool died() const {
    std::lock_guard lock(mutex_);
    return died_;
  }

private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  bool died_ = false;
};

/// Sockets are descriptors, and the usual soft bound of 1024 is for programs that use select().
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit); // if it does not, the doors have room for fewer
  }
}

int serve(ServeOptions options) {
  StopRequests stop;
  std::atomic<bool> serving = false;
  SignalWatch signals([&](int signal, int count) {
    if (!serving || count > 2)
      std::_Exit(128 + signal); // nothing to end in good order, or no patience for it
    stop.add();
  });
  raise_descriptor_limit();

  ServerOptions parts = options.server();
  parts.pipeline.on_death = [&stop] { stop.add_death(); };
  const Engine engine = load_engine(options.model);
  parts.model = model_name(*engine.model, options.model);
  if (options.measure_peaks)
    parts.peaks = measure_peaks(options.model.threads, kProbeBytes);
  Server server(engine, std::move(parts));
  serving = true;
  print(server.endpoints() + "ready\n");
  stop.wait_for_first();
  server.drain(std::chrono::seconds(options.grace), [&stop] { return !stop.impatient(); });
  return stop.died() ? kExitFailure : 0; // a service manager shall start it anew
}

} // namespace

void add_serve(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<ServeOptions>();
  auto& command = *program.add_subcommand(
      "serve", "Answer requests over ZeroMQ and HTTP, and stream tokens as they come");
  add_serve_options(command, *options);
  command.footer(kExamples);
  command.callback([options, &chosen, &command] {
    read_config(command, *options);
    chosen = [options] { return serve(*options); };
  });
}

} // namespace millrace
