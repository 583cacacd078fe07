#include "tests/gateway/http/api_test.hpp"

#include "model/gguf.hpp"

#include <thread>

namespace millrace::http::test {

std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (!tokenizer)
    tokenizer = std::make_shared<Tokenizer>(GgufFile(MILLRACE_TEST_DATA "/vocab/" + name + ".gguf"));
  return tokenizer;
}

std::vector<std::string> data_of(std::string_view events) {
  static constexpr std::string_view kData = "data: ";
  std::vector<std::string> data;
  while (!events.empty()) {
    const std::string_view line = events.substr(0, events.find('\n'));
    events.remove_prefix(std::min(line.size() + 1, events.size()));
    if (line.starts_with(kData))
      data.emplace_back(line.substr(kData.size()));
  }
  return data;
}

std::string last_id_of(std::string_view events) {
  const size_t begin = events.rfind("id: ");
  if (begin == events.npos)
    return {};
  events.remove_prefix(begin + 4);
  return std::string(events.substr(0, events.find('\n')));
}

void ApiTest::SetUp() {
  options_.model = "tales";
  options_.created = 1'700'000'000;
  options_.tokenizer = golden_tokenizer("ggml-vocab-gpt-2");
  options_.limits.vocab_size = options_.tokenizer->vocab_size();
  options_.limits.context_length = 1024;
  server_stats_.version = "1.2.3";
  server_stats_.state = "serving";
  metrics_ = std::make_shared<Metrics>("tales");
  restart();
}

void ApiTest::restart() {
  api_.reset();
  streams_.reset();
  streams_.emplace(streams_options_, Backend{.submit =
                                                 [this](Generate request) {
                                                   submitted_.push_back(std::move(request));
                                                   if (on_submit_)
                                                     on_submit_();
                                                   return refusal_;
                                                 },
                                             .cancel = [this](const StreamId& id) { cancelled_.push_back(id); },
                                             .stats = [this](int32_t) { return server_stats_; }});
  api_.emplace(*streams_, metrics_, options_);
}

std::shared_ptr<FakeExchange> ApiTest::send(Request request) {
  auto exchange = std::make_shared<FakeExchange>(loop_, std::move(request));
  api_->handle(exchange);
  loop_.run();
  return exchange;
}

std::shared_ptr<FakeExchange> ApiTest::get(const std::string& path, std::map<std::string, std::string> headers,
                                           std::map<std::string, std::string> query) {
  Request request;
  request.method = "GET";
  request.path = path;
  request.headers = std::move(headers);
  request.query = std::move(query);
  return send(std::move(request));
}

std::shared_ptr<FakeExchange> ApiTest::post(const std::string& path, std::string body,
                                            std::map<std::string, std::string> headers) {
  Request request;
  request.method = "POST";
  request.path = path;
  request.headers = std::move(headers);
  request.headers.emplace("content-type", "application/json");
  request.body = std::move(body);
  return send(std::move(request));
}

void ApiTest::wait_for(const FakeExchange& exchange) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!exchange.head() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
    loop_.run();
  }
  ASSERT_TRUE(exchange.head()) << "no answer";
}

void ApiTest::say(const Event& event) {
  streams_->publish(event);
  loop_.run();
}

void ApiTest::start(size_t index, int32_t prompt_tokens) {
  Started event;
  event.request = stream(index);
  event.prompt_tokens = prompt_tokens;
  say(event);
}

void ApiTest::token(std::string text, int32_t choice, size_t index, std::vector<TokenLogprob> top) {
  Token event;
  event.request = stream(index);
  event.choice = choice;
  event.seq = next_seq_[{event.request, choice}]++;
  event.id = 7;
  event.bytes.data = text;
  event.text = std::move(text);
  event.logprob = -0.5f;
  event.top = std::move(top);
  say(event);
}

void ApiTest::finish(std::string reason, int32_t choice, size_t index, std::string error) {
  Finished event;
  event.request = stream(index);
  event.choice = choice;
  event.seq = next_seq_[{event.request, choice}]++;
  event.reason = std::move(reason);
  event.error = std::move(error);
  say(event);
}

void ApiTest::done(size_t index, int32_t prompt_tokens, int32_t generated_tokens) {
  Done event;
  event.request = stream(index);
  event.prompt_tokens = prompt_tokens;
  event.generated_tokens = generated_tokens;
  say(event);
}

void ApiTest::answer(size_t index) {
  start(index);
  token(" one", 0, index);
  token(" two", 0, index);
  finish("stop", 0, index);
  done(index);
}

} // namespace millrace::http::test
