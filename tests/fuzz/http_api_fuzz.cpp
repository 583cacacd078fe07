// Whatever the bytes are, as a body, a path or a header: each request is answered or waits for the pipeline, and an answer of
// JSON is JSON. The first byte chooses the route. There is no tokenizer here; fuzz_gguf has that.

#include "gateway/http/api.hpp"
#include "gateway/http/api/json_document.hpp"
#include "tests/gateway/http/fake_exchange.hpp"

#include <cstdint>
#include <cstdlib>

namespace {

using namespace millrace;
using namespace millrace::http;

void require(bool condition) {
  if (!condition)
    std::abort();
}

/// A server whose pipeline takes requests and says two tokens and the end.
struct Server {
  Server() : streams(StreamsOptions{.total_log_bytes = 4u << 20}, backend()), api(streams, nullptr, options()) {}

  Backend backend() {
    return {.submit =
                [this](Generate request) {
                  taken.push_back(std::move(request));
                  return std::nullopt;
                },
            .cancel = [](const StreamId&) {}};
  }
  static ApiOptions options() {
    ApiOptions options;
    options.model = "tales";
    options.limits.vocab_size = 1000;
    options.limits.context_length = 64;
    return options;
  }

  void answer(const Generate& request) {
    Started started;
    started.request = request.request;
    streams.publish(started);
    for (int32_t choice = 0; choice < request.n; ++choice) {
      Token token;
      token.request = request.request;
      token.choice = choice;
      token.bytes.data = "\xc3";
      streams.publish(token);
      Finished finished;
      finished.request = request.request;
      finished.choice = choice;
      finished.seq = 1;
      finished.reason = "stop";
      finished.text = "\xEF\xBF\xBD";
      streams.publish(finished);
    }
    Done done;
    done.request = request.request;
    streams.publish(done);
  }

  void ask(Request request) {
    const auto exchange = std::make_shared<http::test::FakeExchange>(loop, std::move(request));
    api.handle(exchange);
    loop.run();
    for (const Generate& generate : taken) {
      answer(generate);
      loop.run();
    }
    taken.clear();
    require(exchange->head().has_value());
    if (exchange->ended() && exchange->head()->content_type == "application/json")
      require(std::holds_alternative<Json>(read_json(exchange->body(), {.max_depth = 1000, .max_values = 1u << 30})));
    exchange->close();
    loop.run();
  }

  http::test::FakeLoop loop;
  std::vector<Generate> taken;
  Streams streams;
  Api api;
};

Request request_of(uint8_t choice, std::string text) {
  Request request;
  request.method = "POST";
  request.headers["content-type"] = "application/json";
  switch (choice % 6) {
  case 0:
    request.path = "/v1/completions";
    break;
  case 1:
    request.path = "/v1/chat/completions";
    break;
  case 2:
    request.path = "/detokenize";
    break;
  case 3:
    request.path = "/tokenize";
    break;
  case 4:
    request.method = choice & 0x80 ? "DELETE" : "GET";
    request.path = "/v1/" + text;
    return request;
  default:
    request.method = "GET";
    request.path = "/v1/streams/" + std::string(32, '0');
    request.headers["last-event-id"] = text;
    request.query["from_seq"] = text;
    return request;
  }
  request.body = std::move(text);
  return request;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server& server = *new Server; // its worker lives as long as the process
  if (size == 0 || size > (60u << 10))   // longer bodies take the way through the worker
    return 0;
  server.ask(request_of(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1)));
  return 0;
}
