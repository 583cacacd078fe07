#include "cli/server.hpp"

#include "cli/output.hpp"
#include "cli/version.hpp"
#include "gateway/metrics.hpp"
#include "gateway/request_log.hpp"
#include "messages/report.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <thread>

namespace millrace {
namespace {

using namespace std::chrono_literals;

std::string_view to_string(PipelineHealth::State state) {
  switch (state) {
  case PipelineHealth::State::serving: return "serving";
  case PipelineHealth::State::stalled: return "stalled";
  case PipelineHealth::State::dead: return "dead";
  }
  return "dead";
}

/// What the tokens of a request depend on, beside the request.
std::string fingerprint(const Engine& engine) {
  const auto& key = engine.device->key();
  return format("%016llx %016llx %s %s %d", static_cast<unsigned long long>(key.weights_hash),
                static_cast<unsigned long long>(engine.tokenizer->hash()), key.kernel_path.c_str(),
                key.activations.c_str(), engine.device->context_length());
}

} // namespace

Server::Server(const Engine& engine, ServerOptions options)
    : log_(std::make_shared<Log>(options.log)), device_(engine.device), model_(options.model), peaks_(options.peaks) {
  set_reporter([log = log_](std::string_view part, std::string_view text) {
    log->write(LogLevel::error, "report", {{"part", part}, {"text", text, 1024}});
  });
  const auto metrics = std::make_shared<Metrics>(model_);
  options.gateway.metrics = metrics;
  options.gateway.request_log = std::make_shared<RequestLog>(log_, options.log_prompts);
  options.gateway.model_fingerprint = fingerprint(engine);
  options.pipeline.chat = engine.chat;
  pipeline_ = std::make_unique<Pipeline>(engine.tokenizer, engine.device, options.pipeline,
                                         [this](const Event& event) { gateway_->publish(event); });
  gateway_ = std::make_unique<Gateway>(options.gateway, backend());
  wired_.count_down();
  gateway_->resume();

  if (!options.http)
    return;
  http::ApiOptions api;
  api.model = model_;
  api.created = std::time(nullptr);
  api.limits = pipeline_->limits();
  api.tokenizer = engine.tokenizer;
  api.chat_template = engine.chat.chat_template;
  // A handler that lets more wait than it may, loses its peer: the transport's bound stands above the API's
  // own.
  options.http->max_queued_bytes = std::max(options.http->max_queued_bytes, 4 * api.max_queued_bytes);
  options.http->on_connections = [this](size_t open) {
    gateway_->streams().tell_http_connections(static_cast<int64_t>(open));
  };
  api_ = std::make_unique<http::Api>(gateway_->streams(), metrics, std::move(api));
  http_ = std::make_unique<http::Server>(
      *options.http, http::Api::open_paths(),
      [this](std::shared_ptr<http::Exchange> exchange) { api_->handle(std::move(exchange)); });
}

Server::~Server() {
  gateway_->detach(); // first: readers over HTTP that are cut now cancel nothing any more
  http_.reset();
  api_.reset();
  set_reporter({});
}

Backend Server::backend() {
  return {.submit =
              [this](Generate request) {
                wired_.wait();
                return pipeline_->submit(std::move(request));
              },
          .cancel = [this](const StreamId& id) { pipeline_->cancel(id); },
          .check =
              [this](const Generate& request) {
                wired_.wait();
                return validate(request, pipeline_->limits());
              },
          .resume = [this](Resumption resumption) { return resume(std::move(resumption)); },
          .stats =
              [this](int32_t max_requests) {
                wired_.wait();
                return stats(max_requests);
              }};
}

std::optional<Failure> Server::resume(Resumption resumption) {
  ResumedRequest request;
  request.generate = std::move(resumption.generate);
  request.scored = resumption.scored;
  for (auto& choice : resumption.choices)
    request.choices.push_back({std::move(choice.emitted_ids), choice.next_epoch, choice.finished});
  return pipeline_->resume(std::move(request));
}

ServerStats Server::stats(int32_t max_requests) const {
  const auto pipeline = pipeline_->stats();
  ServerStats stats;
  stats.version = version_number();
  stats.model = model_;
  stats.device = device_->name() + " " + device_->key().kernel_path;
  stats.uptime_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  stats.state = to_string(pipeline_->health().state); // the streams know whether it drains
  stats.running = pipeline.running;
  stats.waiting = pipeline.waiting;
  stats.queued_tokens = pipeline.queued_tokens;
  stats.kv_blocks_used = pipeline.kv_blocks_used;
  stats.kv_blocks_total = pipeline.kv_blocks_total;
  stats.prompt_tokens = pipeline.prompt_tokens;
  stats.generated_tokens = pipeline.generated_tokens;
  stats.finished = pipeline.finished;
  stats.rejected = pipeline.rejected;
  stats.restarts = pipeline.restarts;
  stats.passes = pipeline.passes;
  stats.device_busy_seconds = pipeline.device_busy_seconds;
  stats.scheduler = pipeline.scheduler;
  stats.scheduler.peak_bytes_per_second = peaks_.read_gb_s * 1e9;
  stats.scheduler.peak_operations_per_second = peaks_.gop_s(device_->key().activations) * 1e9;
  stats.requests = pipeline_->requests(static_cast<size_t>(std::max(max_requests, 0)));
  return stats;
}

std::string Server::endpoints() const {
  std::string lines =
      "requests " + gateway_->requests_endpoint() + "\nevents " + gateway_->events_endpoint() + "\n";
  return http_ ? lines + "http " + http_->endpoint() + "\n" : lines;
}

bool Server::idle(std::chrono::milliseconds wait) {
  return pipeline_->drain(wait) && (!http_ || http_->stats().answering == 0);
}

void Server::drain(std::chrono::seconds grace, const std::function<bool()>& patient) {
  if (http_) {
    api_->drain();
    http_->drain();
  }
  gateway_->drain();
  if (idle(100ms))
    return;
  std::fprintf(stderr,
               "millrace: waiting for running requests, %lld s at most; another signal ends them now\n",
               static_cast<long long>(grace.count()));
  const auto deadline = std::chrono::steady_clock::now() + grace;
  while (!idle(100ms) && patient() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(10ms);
}

} // namespace millrace
