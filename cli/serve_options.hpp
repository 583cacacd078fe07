#pragma once

// The flags of serve. Defaults are those of the parts that they belong to.

#include "cli/options.hpp"
#include "cli/server.hpp"

#include <string>

namespace millrace {

/// As the command line gives them.
struct ServeOptions {
  ModelOptions model;
  PipelineOptions pipeline;
  GatewayOptions gateway;
  http::ServerOptions http;
  bool no_http = false;
  bool measure_peaks = false;
  bool allow_remote = false; // for both doors; each still wants its keys
  int32_t port = -1; // of requests; events take the next one, 0 picks both; -1: as the gateway's options say
  int32_t http_port = -1; // -1: 8080, or a free one if --port asks for free ones
  int32_t grace = 30;     // seconds

  // In units for people.
  int32_t max_connections = 12'000;
  int32_t max_body_mib = 8;
  int32_t header_timeout_s = 15, body_timeout_s = 60, idle_timeout_s = 90, write_timeout_s = 60;
  int32_t stream_log_mib = 8, total_log_mib = 256;
  int32_t log_ttl_s = 300;
  int32_t max_queued_tokens = 65'536;
  int32_t max_queue_wait_s = 60, ageing_s = 10;

  LogOptions log;
  bool log_prompts = false;

  std::string config; // a file of further flags

  /// For the parts; the model's name is still to be filled in.
  ServerOptions server() const;
};

void add_serve_options(CLI::App& command, ServeOptions& options);

/// Takes from --config what the command line did not say: lines as `http-port = 8081` or `allow-remote =
/// true`, in TOML without sections. Throws UsageError naming the file, and the flag that there is none of.
void read_config(CLI::App& command, const ServeOptions& options);

} // namespace millrace
