// serve: the pipeline behind the gateway, until a signal ends it.

#include "actors/pipeline.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/load.hpp"
#include "cli/options.hpp"
#include "cli/output.hpp"
#include "cli/signals.hpp"
#include "gateway/gateway.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <latch>
#include <mutex>

namespace millrace {
namespace {

using namespace std::chrono_literals;

constexpr const char* kExamples = R"(Examples:
  millrace serve                          the built-in model on loopback, ports 5555 and 5556
  millrace serve -m model.gguf --port 0   free ports; stdout tells which
  /usr/bin/python3 examples/subscribe.py "Once upon a time"

Prints "requests ENDPOINT", "events ENDPOINT" and, once it serves, "ready". SIGTERM or Ctrl-C refuses new
requests and lets the running ones end; a second one ends at once. Ends with code 1 when the model's actors
died too often to go on.)";

struct Options {
  ModelOptions model;
  PipelineOptions pipeline;
  GatewayOptions gateway;
  int32_t port = -1;  // of requests; events take the next one, 0 picks both; -1: as the gateway's options say
  int32_t grace = 30; // seconds
};

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

/// Pipeline and gateway, which need each other.
class Server {
public:
  Server(const Engine& engine, const PipelineOptions& pipeline, const GatewayOptions& gateway) {
    pipeline_ = std::make_unique<Pipeline>(engine.tokenizer, engine.device, pipeline,
                                           [this](const Event& event) { gateway_->publish(event); });
    gateway_ = std::make_unique<Gateway>(
        gateway, Backend{.submit =
                             [this](Generate request) {
                               wired_.wait();
                               return pipeline_->submit(std::move(request));
                             },
                         .cancel = [this](const StreamId& id) { pipeline_->cancel(id); }});
    wired_.count_down();
  }
  /// What still runs is cancelled; each stream gets its end.
  ~Server() { gateway_->detach(); }

  const Gateway& gateway() const { return *gateway_; }

  /// Refuses new requests and waits for the running ones, as long as `grace` and patience last.
  void drain(std::chrono::seconds grace, const StopRequests& stop) {
    gateway_->drain();
    if (pipeline_->drain(100ms))
      return;
    std::fprintf(stderr,
                 "millrace: waiting for running requests, %lld s at most; another signal ends them now\n",
                 static_cast<long long>(grace.count()));
    const auto deadline = std::chrono::steady_clock::now() + grace;
    while (!pipeline_->drain(100ms) && !stop.impatient() && std::chrono::steady_clock::now() < deadline) {
    }
  }

private:
  std::latch wired_{1};              // a request may come before the constructor has ended
  std::unique_ptr<Gateway> gateway_; // publishes what the pipeline says at its end, so it goes last
  std::unique_ptr<Pipeline> pipeline_;
};

void choose_ports(GatewayOptions& gateway, int32_t port) {
  if (port < 0)
    return;
  const std::string host = "tcp://127.0.0.1:";
  gateway.requests = host + std::to_string(port);
  gateway.events = host + std::to_string(port == 0 ? 0 : port + 1);
}

int serve(Options options) {
  StopRequests stop;
  std::atomic<bool> serving = false;
  SignalWatch signals([&](int signal, int count) {
    if (!serving || count > 2)
      std::_Exit(128 + signal); // nothing to end in good order, or no patience for it
    stop.add();
  });
  choose_ports(options.gateway, options.port);

  options.pipeline.on_death = [&stop] { stop.add_death(); };
  const Engine engine = load_engine(options.model);
  options.pipeline.chat = engine.chat;
  Server server(engine, options.pipeline, options.gateway);
  serving = true;
  print("requests " + server.gateway().requests_endpoint() + "\nevents " +
        server.gateway().events_endpoint() + "\nready\n");
  stop.wait_for_first();
  server.drain(std::chrono::seconds(options.grace), stop);
  return stop.died() ? kExitFailure : 0; // a service manager shall start it anew
}

} // namespace

void add_serve(CLI::App& program, Action& chosen) {
  auto options = std::make_shared<Options>();
  auto& command =
      *program.add_subcommand("serve", "Answer requests over ZeroMQ and publish tokens as they come");
  add_model_options(command, options->model);

  command.option_defaults()->group("Network");
  auto* port = add_int(command, "--port", options->port, 0, 65534,
                       "Loopback port of requests; events take the next one; 0 picks free ones [5555]");
  command
      .add_option("--requests-endpoint", options->gateway.requests, "ROUTER socket [tcp://127.0.0.1:5555]")
      ->option_text("URL")
      ->excludes(port);
  command.add_option("--events-endpoint", options->gateway.events, "XPUB socket [tcp://127.0.0.1:5556]")
      ->option_text("URL")
      ->excludes(port);

  command.option_defaults()->group("Serving");
  add_int(command, "--max-batch", options->pipeline.max_batch_size, 1, 1024,
          "Sequences that decode together [16]");
  add_int(command, "--prefill-chunk", options->pipeline.prefill_chunk, 1, 1 << 16,
          "Prompt tokens in one pass [128]");
  add_int(command, "--grace", options->grace, 0, 86400, "Seconds that running requests get to end [30]");
  command.footer(kExamples);
  command.callback([options, &chosen] { chosen = [options] { return serve(*options); }; });
}

} // namespace millrace
