#include "cli/serve_options.hpp"

#include "cli/errors.hpp"
#include "cli/output.hpp"

#include <map>

namespace millrace {
namespace {

constexpr int32_t kMaxSeconds = 86'400;
constexpr int32_t kMaxMib = 1 << 20;

template <class Text>
CLI::Option* add_text(CLI::App& command, const std::string& flag, Text& target, const std::string& unit,
                      const std::string& help) {
  return command
      .add_option_function<std::string>(
          flag, [&target](const std::string& word) { target = word; }, help)
      ->option_text(unit);
}

void add_network(CLI::App& command, ServeOptions& options) {
  command.option_defaults()->group("Network");
  auto* port = add_int(command, "--port", options.port, 0, 65534,
                       "Loopback port of requests; events take the next one; 0 picks free ones [5555]");
  add_text(command, "--requests-endpoint", options.gateway.requests, "URL",
           "ROUTER socket [tcp://127.0.0.1:5555]")
      ->excludes(port);
  add_text(command, "--events-endpoint", options.gateway.events, "URL", "XPUB socket [tcp://127.0.0.1:5556]")
      ->excludes(port);
  add_int(command, "--http-port", options.http_port, 0, 65535,
          "Port of HTTP; 0 picks a free one [8080; 0 with --port 0]");
  add_text(command, "--http-address", options.http.address, "ADDRESS", "Where HTTP listens [127.0.0.1]");
  command.add_flag("--no-http", options.no_http, "ZeroMQ alone");
}

void add_access(CLI::App& command, ServeOptions& options) {
  command.option_defaults()->group("Access");
  add_text(
      command, "--api-keys", options.http.api_keys, "FILE",
      "HTTP clients need a key of FILE: \"name key\" or \"key\" a line; only its owner may read it");
  auto* certificate =
      add_text(command, "--tls-cert", options.http.certificate, "FILE", "HTTPS: PEM certificate chain");
  auto* key = add_text(command, "--tls-key", options.http.private_key, "FILE", "HTTPS: PEM private key");
  certificate->needs(key);
  key->needs(certificate);
  auto* curve = add_text(command, "--curve-key", options.gateway.curve.key_file, "FILE",
                         "ZeroMQ clients need a key; this is the server's, as `millrace keygen` makes it");
  auto* allowed = add_text(command, "--curve-allow", options.gateway.curve.allow_file, "FILE",
                           "Public keys of ZeroMQ clients");
  curve->needs(allowed);
  allowed->needs(curve);
  command.add_flag("--allow-remote", options.allow_remote,
                   "Addresses beyond loopback; HTTP then needs --api-keys and TLS, ZeroMQ --curve-key");
}

void add_streams(CLI::App& command, ServeOptions& options) {
  command.option_defaults()->group("Streams");
  add_text(command, "--log-dir", options.gateway.log_dir, "FOLDER",
           "Keep streams here, so that they outlive the process");
  add_int(command, "--stream-log-mib", options.stream_log_mib, 1, kMaxMib,
          "Events of one stream that can be read again, MiB [8]");
  add_int(command, "--total-log-mib", options.total_log_mib, 1, kMaxMib, "Of all streams, MiB [256]");
  add_int(command, "--log-ttl", options.log_ttl_s, 1, kMaxSeconds,
          "Seconds that an ended stream can be read again [300]");
}

void add_limits(CLI::App& command, ServeOptions& options) {
  command.option_defaults()->group("Limits of HTTP");
  add_int(command, "--max-connections", options.max_connections, 1, 1 << 20, "Connections at once [12000]");
  add_int(command, "--max-body-mib", options.max_body_mib, 1, 1024, "Size of a request's body, MiB [8]");
  add_int(command, "--header-timeout", options.header_timeout_s, 1, kMaxSeconds,
          "Seconds for a request's head [15]");
  add_int(command, "--body-timeout", options.body_timeout_s, 1, kMaxSeconds, "Seconds for its body [60]");
  add_int(command, "--idle-timeout", options.idle_timeout_s, 1, kMaxSeconds,
          "Seconds between two requests [90]");
  add_int(command, "--write-timeout", options.write_timeout_s, 1, kMaxSeconds,
          "Seconds after which a client that takes nothing is cut [60]");
}

void add_logging(CLI::App& command, ServeOptions& options) {
  command.option_defaults()->group("Log");
  const std::map<std::string, LogFormat> formats = {{"text", LogFormat::text}, {"json", LogFormat::json}};
  command.add_option("--log-format", options.log.format, "Lines on stderr as key=value or as JSON [text]")
      ->transform(CLI::CheckedTransformer(formats))
      ->option_text("text|json");
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::debug},
                                                  {"info", LogLevel::info},
                                                  {"warning", LogLevel::warning},
                                                  {"error", LogLevel::error},
                                                  {"off", LogLevel::off}};
  command
      .add_option("--log-level", options.log.level,
                  "The least that is written: debug, info, warning, error, off [info]")
      ->transform(CLI::CheckedTransformer(levels))
      ->option_text("LEVEL");
  command.add_flag("--log-prompts", options.log_prompts, "Write prompts into the log, too");
}

void add_serving(CLI::App& command, ServeOptions& options) {
  command.option_defaults()->group("Serving");
  add_int(command, "--max-batch", options.pipeline.max_batch_size, 1, 1024,
          "Sequences that decode together [16]");
  add_int(command, "--prefill-chunk", options.pipeline.prefill_chunk, 1, 1 << 16,
          "Prompt tokens in one pass [128]");
  add_share(command, "--prefill-stretch", options.pipeline.prefill_stretch, 1'000,
            "Decode steps that a pass over prompts beside them may last [1.5]");
  add_int(command, "--kv-positions", options.model.kv_positions, 1, 1 << 30,
          "Positions in the KV cache, of all sequences [16 contexts, at most a quarter of the memory]");
  command.add_flag("--no-prefix-cache", options.model.no_prefix_cache,
                   "Read each prompt from its beginning, though another began alike");
  add_int(command, "--max-queued-requests", options.pipeline.max_queued_requests, 1, 1 << 20,
          "Requests that wait; beyond it they are refused as busy [1024]");
  add_int(command, "--max-queued-tokens", options.max_queued_tokens, 1, 1 << 30,
          "Likewise, in tokens of prompts [65536]");
  add_int(command, "--max-queue-wait", options.max_queue_wait_s, 0, kMaxSeconds,
          "Seconds; what would wait longer is refused as busy; 0: nothing is [60]");
  add_share(command, "--max-tenant-share", options.pipeline.max_tenant_share, 1,
            "Part of what may wait that one tenant may fill [0.75]");
  add_int(command, "--ageing", options.ageing_s, 1, kMaxSeconds,
          "Seconds of waiting that make a request one level of priority more urgent [10]");
  command.add_flag("--measure-peaks", options.measure_peaks,
                   "Measure the machine at start (3 s), so that metrics tell how near its peaks the model runs");
  add_int(command, "--grace", options.grace, 0, kMaxSeconds, "Seconds that running requests get to end [30]");
  add_text(command, "--config", options.config, "FILE",
           "More of these flags, as `max-batch = 32`; the command line goes first")
      ->configurable(false);
}

} // namespace

ServerOptions ServeOptions::server() const {
  const auto mib = [](int32_t n) { return static_cast<size_t>(n) << 20; };
  using std::chrono::seconds;
  ServerOptions parts;
  parts.pipeline = pipeline;
  parts.pipeline.max_queued_tokens = max_queued_tokens;
  parts.pipeline.max_queue_wait = seconds(max_queue_wait_s);
  parts.pipeline.ageing = seconds(ageing_s);

  parts.log = log;
  parts.log_prompts = log_prompts;

  parts.gateway = gateway;
  if (port >= 0) {
    const std::string host = "tcp://127.0.0.1:";
    parts.gateway.requests = host + std::to_string(port);
    parts.gateway.events = host + std::to_string(port == 0 ? 0 : port + 1);
  }
  parts.gateway.allow_remote = allow_remote;
  parts.gateway.stream_log_bytes = mib(stream_log_mib);
  parts.gateway.total_log_bytes = mib(total_log_mib);
  parts.gateway.log_ttl = seconds(log_ttl_s);
  if (no_http)
    return parts;

  parts.http = http;
  parts.http->allow_remote = allow_remote;
  parts.http->port = static_cast<uint16_t>(http_port >= 0 ? http_port : port == 0 ? 0 : 8080);
  parts.http->max_connections = static_cast<size_t>(max_connections);
  parts.http->max_body_bytes = mib(max_body_mib);
  parts.http->header_timeout = seconds(header_timeout_s);
  parts.http->body_timeout = seconds(body_timeout_s);
  parts.http->idle_timeout = seconds(idle_timeout_s);
  parts.http->write_timeout = seconds(write_timeout_s);
  return parts;
}

void add_serve_options(CLI::App& command, ServeOptions& options) {
  add_model_options(command, options.model);
  add_network(command, options);
  add_access(command, options);
  add_streams(command, options);
  add_limits(command, options);
  add_logging(command, options);
  add_serving(command, options);
}

void read_config(CLI::App& command, const ServeOptions& options) {
  if (options.config.empty())
    return;
  const auto fail = [&](const std::string& why) {
    throw UsageError("--config: " + options.config + ": " + why);
  };
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(options.config);
  } catch (const CLI::Error&) {
    fail("can't be read");
  }
  for (const auto& item : items) {
    auto* option = item.parents.empty() ? command.get_option_no_throw("--" + item.name) : nullptr;
    if (!option || !option->get_configurable())
      fail("there is no flag " + item.fullname());
    if (option->count() > 0) // the command line said it
      continue;
    option->add_result(item.inputs);
    option->run_callback();
  }
}

} // namespace millrace
