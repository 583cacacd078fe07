#pragma once

// The API over real streams, with a pipeline whose words the test puts into its mouth.

#include "gateway/http/api.hpp"
#include "gateway/http/api/json_document.hpp"
#include "tests/gateway/http/fake_exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace millrace::http::test {

/// A tokenizer of tests/golden/vocab, loaded once.
std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name);

/// The data of server-sent events, comments left out.
std::vector<std::string> data_of(std::string_view events);
/// The last id that they carry.
std::string last_id_of(std::string_view events);

class ApiTest : public testing::Test {
protected:
  void SetUp() override;
  /// With the options as the test has set them.
  void restart();

  std::shared_ptr<FakeExchange> send(Request request);
  std::shared_ptr<FakeExchange> get(const std::string& path, std::map<std::string, std::string> headers = {},
                                    std::map<std::string, std::string> query = {});
  std::shared_ptr<FakeExchange> post(const std::string& path, std::string body,
                                     std::map<std::string, std::string> headers = {});
  /// For answers that a worker gives: turns the loop until there is one.
  void wait_for(const FakeExchange& exchange);

  // ---- the pipeline ----

  StreamId stream(size_t index = 0) const { return submitted_.at(index).request; }
  void say(const Event& event);
  void start(size_t index = 0, int32_t prompt_tokens = 4);
  /// The next token of a choice.
  void token(std::string text, int32_t choice = 0, size_t index = 0, std::vector<TokenLogprob> top = {});
  void finish(std::string reason, int32_t choice = 0, size_t index = 0, std::string error = {});
  void done(size_t index = 0, int32_t prompt_tokens = 4, int32_t generated_tokens = 2);
  /// Two tokens, " one" and " two", and the end, of a request with one choice.
  void answer(size_t index = 0);

  FakeLoop loop_;
  ServerStats server_stats_;
  std::optional<Failure> refusal_;
  std::function<void()> on_submit_; // of a pipeline that is quicker than the API
  std::vector<Generate> submitted_;
  std::vector<StreamId> cancelled_;
  std::map<std::pair<StreamId, int32_t>, int64_t> next_seq_;
  StreamsOptions streams_options_;
  ApiOptions options_;
  std::shared_ptr<Metrics> metrics_;
  std::optional<Streams> streams_;
  std::optional<Api> api_;
};

} // namespace millrace::http::test
