#pragma once

#include "actors/pipeline.hpp"
#include "cli/load.hpp"
#include "cli/peaks.hpp"
#include "gateway/gateway.hpp"
#include "gateway/http/api.hpp"
#include "gateway/http/server.hpp"
#include "gateway/logging.hpp"

#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>

namespace millrace {

struct ServerOptions {
  std::string model; // its name, as clients use it
  PipelineOptions pipeline;
  Rates peaks; // of the machine, beside which metrics stand; zeros: not measured
  GatewayOptions gateway;
  LogOptions log;
  bool log_prompts = false;
  std::optional<http::ServerOptions> http; // absent: no HTTP
};

/// A model behind both doors: the pipeline, the streams with their ZeroMQ door, and HTTP beside it.
class Server {
public:
  /// Serves when it returns. Throws what the parts throw: std::system_error naming an endpoint or a file,
  /// std::invalid_argument for doors that would be open to strangers.
  Server(const Engine& engine, ServerOptions options);
  /// What still runs is cancelled; each stream gets its end.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// A line for each door, "requests tcp://127.0.0.1:5555" and so on.
  std::string endpoints() const;

  /// Refuses new requests and waits until the running ones have ended and their readers have all of it: as
  /// long as `grace` lasts, and while `patient` says so.
  void drain(std::chrono::seconds grace, const std::function<bool()>& patient);

private:
  Backend backend();
  std::optional<Failure> resume(Resumption resumption);
  ServerStats stats(int32_t max_requests) const;
  bool idle(std::chrono::milliseconds wait);

  const std::shared_ptr<Log> log_;
  const std::shared_ptr<Device> device_;
  const std::string model_;
  const Rates peaks_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::latch wired_{1};              // a request may come before the constructor has ended
  std::unique_ptr<Gateway> gateway_; // publishes what the pipeline says at its end, so it goes last
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<http::Api> api_;
  std::unique_ptr<http::Server> http_; // calls the API, so it goes first
};

} // namespace millrace
