#pragma once

// The API of OpenAI and what Millrace adds: paths to handlers. Knows streams, tokenizer and metrics; no sockets.
// docs/http.md tells it to clients.

#include "gateway/http/exchange.hpp"
#include "gateway/metrics.hpp"
#include "gateway/streams.hpp"
#include "model/text/chat/chat_template.hpp"
#include "model/text/tokenizer.hpp"

#include <memory>
#include <string>

namespace millrace::http {

struct ApiOptions {
  std::string model;                  // the name that /v1/models tells
  int64_t created = 0;                // Unix time of the model
  Limits limits;                      // of the pipeline
  std::shared_ptr<const Tokenizer> tokenizer = {}; // absent: texts cannot be tokenized, nor ids be echoed
  std::shared_ptr<const ChatTemplate> chat_template = {}; // for /tokenize of messages; may be absent
  std::chrono::milliseconds ping{15'000};   // SSE comments on a silent stream
  size_t max_queued_bytes = 256u << 10;     // of one answer; a reader waits in the log, not in memory
  size_t max_lag_bytes = 4u << 20;          // that a reader may be behind; beyond it: lagging, and the answer ends
  size_t max_answer_bytes = 32u << 20;      // of one that is not streamed
  size_t max_all_answers_bytes = 256u << 20; // of all that are not streamed, until their peers have them
  size_t max_json_depth = 64;
  bool require_known_model = true;          // "model" of a request must be `model` or absent
};

class Api {
public:
  /// The streams must outlive the API, and the server that calls handle() must be gone before the API.
  Api(Streams& streams, std::shared_ptr<Metrics> metrics, ApiOptions options);
  ~Api();

  /// On the loop's thread, always the same.
  void handle(std::shared_ptr<Exchange> exchange);
  /// Refuses new requests as "draining" (503). Any thread.
  void drain();

  /// Paths that need no key: /health, /ready and /live, which tell nothing but that.
  static std::vector<std::string> open_paths();

private:
  struct State;
  std::shared_ptr<State> state_;
};

} // namespace millrace::http
