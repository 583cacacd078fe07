#include "tests/gateway/http/api_test.hpp"

namespace millrace::http::test {
namespace {

using namespace std::chrono_literals;

class CompletionsTest : public ApiTest {
protected:
  /// The fields of a chunk or an answer.
  static Json parse(const std::string& text) {
    auto read = read_json(text, {});
    if (const auto* problem = std::get_if<JsonProblem>(&read)) {
      ADD_FAILURE() << problem->message << ": " << text;
      return {};
    }
    return std::get<Json>(std::move(read));
  }
  static std::vector<Json> chunks_of(const FakeExchange& exchange) {
    std::vector<Json> chunks;
    for (const std::string& data : data_of(exchange.body()))
      if (data != "[DONE]")
        chunks.push_back(parse(data));
    return chunks;
  }
  static bool done_was_said(const FakeExchange& exchange) { return exchange.body().ends_with("data: [DONE]\n\n"); }
  static std::string error_code(const FakeExchange& exchange) { return parse(exchange.body())["error"]["code"]; }

  std::shared_ptr<FakeExchange> complete(const std::string& fields = "", std::map<std::string, std::string> headers = {}) {
    return post("/v1/completions", R"({"prompt":"Once")" + (fields.empty() ? "" : "," + fields) + "}", std::move(headers));
  }
  std::shared_ptr<FakeExchange> chat(const std::string& fields = "") {
    return post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"Hi"}])" + (fields.empty() ? "" : "," + fields) + "}");
  }
  void scored(int32_t position, std::vector<PromptToken> tokens) {
    PromptLogprobs event;
    event.request = stream();
    event.position = position;
    event.tokens = std::move(tokens);
    say(event);
  }
  static PromptToken prompt_token(TokenId id, std::string bytes, std::optional<float> logprob) {
    PromptToken token;
    token.id = id;
    token.bytes.data = std::move(bytes);
    token.logprob = logprob;
    if (logprob)
      token.top = {{9, Bytes{"top"}, -0.25f}};
    return token;
  }
};

TEST_F(CompletionsTest, AnswersAsAWhole) {
  const auto exchange = complete(R"("max_tokens":5)");
  EXPECT_FALSE(exchange->head());
  answer();

  ASSERT_EQ(exchange->status(), 200);
  const Json body = parse(exchange->body());
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "tales");
  EXPECT_EQ(body["id"], "cmpl-" + to_hex(stream()));
  EXPECT_EQ(write_json(body["choices"]),
            R"([{"index":0,"text":" one two","logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  EXPECT_EQ(body["usage"]["total_tokens"], 6);
  EXPECT_EQ(exchange->header("X-Millrace-Stream"), to_hex(stream()));
}

TEST_F(CompletionsTest, StreamsChunksWithIds) {
  const auto exchange = complete(R"("stream":true)");
  start();
  ASSERT_EQ(exchange->status(), 200);
  EXPECT_EQ(exchange->head()->content_type, "text/event-stream");
  EXPECT_EQ(exchange->header("X-Millrace-Stream"), to_hex(stream()));
  token(" one");
  EXPECT_EQ(last_id_of(exchange->body()), "0:0");
  token(" two");
  finish("length");
  done();

  const auto chunks = chunks_of(*exchange);
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(write_json(chunks[0]["choices"]), R"([{"index":0,"text":" one","logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(chunks[1]["choices"][0]["text"], " two");
  EXPECT_EQ(write_json(chunks[2]["choices"]), R"([{"index":0,"text":"","logprobs":null,"finish_reason":"length"}])");
  EXPECT_EQ(last_id_of(exchange->body()), "0:2");
  EXPECT_TRUE(done_was_said(*exchange));
  EXPECT_TRUE(exchange->ended());
}

TEST_F(CompletionsTest, ChatsTellTheirRoleFirst) {
  const auto exchange = chat(R"("stream":true)");
  answer();

  const auto chunks = chunks_of(*exchange);
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(write_json(chunks[0]["choices"][0]["delta"]), R"({"role":"assistant","content":""})");
  EXPECT_EQ(write_json(chunks[1]["choices"][0]["delta"]), R"({"content":" one"})");
  EXPECT_EQ(write_json(chunks[3]["choices"][0]["delta"]), "{}");
  EXPECT_EQ(chunks[3]["choices"][0]["finish_reason"], "stop");
}

TEST_F(CompletionsTest, ChatsAnswerWithAMessage) {
  const auto exchange = chat();
  answer();

  const Json body = parse(exchange->body());
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(write_json(body["choices"]),
            R"([{"index":0,"message":{"role":"assistant","content":" one two","refusal":null},"logprobs":null,)"
            R"("finish_reason":"stop"}])");
}

// P01, F36: what was held back comes with the end, and whole and stream agree.
TEST_F(CompletionsTest, PassesOnWhatWasHeldBackToTheEnd) {
  const auto streamed = chat(R"("stream":true)");
  const auto whole = chat();
  for (const size_t index : {0u, 1u}) {
    start(index);
    token("é", 0, index);
    Finished event;
    event.request = stream(index);
    event.seq = 1;
    event.reason = "length";
    event.text = "\xEF\xBF\xBD";
    say(event);
    done(index);
  }

  std::string text;
  for (const Json& chunk : chunks_of(*streamed))
    if (chunk["choices"][0]["delta"].contains("content"))
      text += chunk["choices"][0]["delta"]["content"].get<std::string>();
  EXPECT_EQ(text, "é\xEF\xBF\xBD");
  EXPECT_EQ(parse(whole->body())["choices"][0]["message"]["content"], text);
}

// P03
TEST_F(CompletionsTest, WritesJsonWhateverTheModelSays) {
  const auto exchange = complete(R"("logprobs":1)");
  start();
  Token event;
  event.request = stream();
  event.bytes.data = "\xff\xfe";
  event.text = "\xEF\xBF\xBD\xEF\xBF\xBD";
  event.logprob = -0.5f;
  event.top = {{5, Bytes{"\xc3"}, -1.0f}, {6, Bytes{"\xc4"}, -2.0f}};
  say(event);
  next_seq_[{stream(), 0}] = 1;
  finish("stop");
  done();

  const Json logprobs = parse(exchange->body())["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"][0], R"(bytes:\xff\xfe)");
  EXPECT_EQ(write_json(logprobs["top_logprobs"][0]),
            R"({"bytes:\\xc3":-1.0,"bytes:\\xc4":-2.0,"bytes:\\xff\\xfe":-0.5})");
}

TEST_F(CompletionsTest, TellsUsageInTheStreamIfAsked) {
  const auto exchange = complete(R"("stream":true,"stream_options":{"include_usage":true})");
  answer();

  const auto chunks = chunks_of(*exchange);
  EXPECT_TRUE(chunks[0]["usage"].is_null());
  EXPECT_TRUE(chunks[0].contains("usage"));
  EXPECT_EQ(write_json(chunks.back()["choices"]), "[]");
  EXPECT_EQ(chunks.back()["usage"]["total_tokens"], 6);
  EXPECT_TRUE(done_was_said(*exchange));
}

TEST_F(CompletionsTest, TellsWhichTokensOfThePromptWereCached) {
  const auto exchange = complete(R"("n":2)");
  Started event;
  event.request = stream();
  event.prompt_tokens = 40;
  for (const auto& [choice, epoch, cached] : {std::tuple{0, 0u, 32}, {1, 0u, 39}, {0, 1u, 36}}) {
    event.choice = choice;
    event.epoch = epoch;
    event.cached_tokens = cached;
    say(event);
  }
  for (const int32_t choice : {0, 1}) {
    Finished end;
    end.request = stream();
    end.choice = choice;
    end.epoch = 1;
    end.reason = "stop";
    say(end);
  }
  done(0, 40);

  const Json usage = parse(exchange->body())["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 40);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 32) << "before the first choice was read the first time";
}

TEST_F(CompletionsTest, EndsAtTheDeadlineWithWhatThereIs) {
  for (const char* stream_field : {"", R"(,"stream":true)"}) {
    const size_t index = submitted_.size();
    const auto exchange = complete(R"("deadline_ms":100)" + std::string(stream_field));
    start(index);
    token(" one", 0, index);
    finish("deadline", 0, index);
    done(index, 4, 1);

    ASSERT_EQ(exchange->status(), 200) << stream_field;
    EXPECT_NE(exchange->body().find(R"("finish_reason":"deadline")"), std::string::npos) << exchange->body();
  }
}

TEST_F(CompletionsTest, IsATimeOutWithoutATokenByTheDeadline) {
  const auto whole = complete(R"("deadline_ms":100)");
  finish("deadline");
  done(0, 4, 0);

  EXPECT_EQ(whole->status(), 504);
  const Json error = parse(whole->body())["error"];
  EXPECT_EQ(error["type"], "timeout_error");
  EXPECT_EQ(error["code"], "deadline");
  EXPECT_EQ(error["param"], "deadline_ms");
  EXPECT_TRUE(cancelled_.empty()) << "it has ended";

  const auto streamed = complete(R"("deadline_ms":100,"stream":true)");
  finish("deadline", 0, 1);
  done(1, 4, 0);
  EXPECT_EQ(streamed->status(), 200);
  EXPECT_EQ(chunks_of(*streamed).back()["choices"][0]["finish_reason"], "deadline");
  EXPECT_TRUE(done_was_said(*streamed));
}

TEST_F(CompletionsTest, AreRefusedAsBusyWhileTheLogIsFull) {
  streams_options_.total_log_bytes = 6'000;
  restart();
  std::shared_ptr<FakeExchange> exchange;
  for (int i = 0; i < 20 && !(exchange && exchange->head()); ++i)
    exchange = complete();

  ASSERT_TRUE(exchange->head());
  EXPECT_EQ(exchange->status(), 429);
  EXPECT_EQ(exchange->header("Retry-After"), "1");
  EXPECT_EQ(error_code(*exchange), "busy");
}

TEST_F(CompletionsTest, TakeTheTenantFromTheKeyOrElseFromTheUser) {
  Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers.emplace("content-type", "application/json");
  request.body = R"({"prompt":"Once","user":"ann"})";
  send(request);
  request.principal.name = "http:alice";
  send(request);

  EXPECT_EQ(submitted_.at(0).tenant, "ann");
  EXPECT_EQ(submitted_.at(1).tenant, "http:alice");
}

TEST_F(CompletionsTest, NumbersChoicesThroughAllPrompts) {
  const auto exchange = post("/v1/completions", R"({"prompt":["a","b"],"n":2})");
  ASSERT_EQ(submitted_.size(), 2u);
  for (const size_t index : {1u, 0u}) {
    start(index);
    for (const int32_t choice : {1, 0}) {
      token(std::to_string(index) + "/" + std::to_string(choice), choice, index);
      finish("stop", choice, index);
    }
    done(index);
  }

  const Json body = parse(exchange->body());
  ASSERT_EQ(body["choices"].size(), 4u);
  EXPECT_EQ(body["choices"][1]["text"], "0/1");
  EXPECT_EQ(body["choices"][2]["text"], "1/0");
  EXPECT_EQ(body["choices"][2]["index"], 2);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(exchange->header("X-Millrace-Stream"), to_hex(stream(0)) + ", " + to_hex(stream(1)));
}

TEST_F(CompletionsTest, TellsLogprobsOfACompletion) {
  const auto exchange = complete(R"("logprobs":2)");
  start();
  token("é", 0, 0, {{8, Bytes{"x"}, -0.1f}, {9, Bytes{"x"}, -3.0f}});
  token(" b");
  finish("stop");
  done();

  EXPECT_EQ(write_json(parse(exchange->body())["choices"][0]["logprobs"]),
            "{\"tokens\":[\"é\",\" b\"],\"token_logprobs\":[-0.5,-0.5],"
            "\"top_logprobs\":[{\"x\":-0.1,\"é\":-0.5},{\" b\":-0.5}],\"text_offset\":[0,1]}");
}

TEST_F(CompletionsTest, TellsLogprobsOfAChat) {
  const auto exchange = chat(R"("logprobs":true,"top_logprobs":1)");
  start();
  token("é", 0, 0, {{8, Bytes{"x"}, -0.1f}});
  finish("stop");
  done();

  EXPECT_EQ(write_json(parse(exchange->body())["choices"][0]["logprobs"]),
            "{\"content\":[{\"token\":\"é\",\"logprob\":-0.5,\"bytes\":[195,169],"
            "\"top_logprobs\":[{\"token\":\"x\",\"logprob\":-0.1,\"bytes\":[120]}]}],\"refusal\":null}");
}

// P34
TEST_F(CompletionsTest, WritesNoInfinity) {
  const auto exchange = complete(R"("logprobs":1)");
  start();
  Token event;
  event.request = stream();
  event.text = event.bytes.data = "a";
  event.logprob = -9999;
  event.top = {{1, Bytes{"a"}, -9999}};
  say(event);
  next_seq_[{stream(), 0}] = 1;
  finish("stop");
  done();

  EXPECT_EQ(parse(exchange->body())["choices"][0]["logprobs"]["token_logprobs"][0], -9999.0);
}

TEST_F(CompletionsTest, EchoesThePromptWithItsLogprobs) {
  const auto exchange = post("/v1/completions", R"({"prompt":"é b","echo":true,"logprobs":1,"max_tokens":1})");
  EXPECT_EQ(submitted_.at(0).prompt_logprobs, 1);
  start(0, 3);
  scored(0, {prompt_token(1, "\xc3", std::nullopt), prompt_token(2, "\xa9", -1.0f)});
  scored(2, {prompt_token(3, " b", -2.0f)});
  token("!");
  finish("length");
  done(0, 3, 1);

  const Json choice = parse(exchange->body())["choices"][0];
  EXPECT_EQ(choice["text"], "é b!");
  EXPECT_EQ(write_json(choice["logprobs"]["tokens"]), R"(["bytes:\\xc3","bytes:\\xa9"," b","!"])");
  EXPECT_EQ(write_json(choice["logprobs"]["token_logprobs"]), "[null,-1.0,-2.0,-0.5]");
  EXPECT_EQ(write_json(choice["logprobs"]["text_offset"]), "[0,0,1,3]");
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"][0].is_null());
  EXPECT_EQ(write_json(choice["logprobs"]["top_logprobs"][2]), R"({"top":-0.25," b":-2.0})");
}

TEST_F(CompletionsTest, ScoresAPromptWithoutGenerating) {
  const auto exchange = post("/v1/completions", R"({"prompt":"a b","echo":true,"logprobs":0,"max_tokens":0})");
  EXPECT_EQ(submitted_.at(0).max_tokens, 0);
  start(0, 2);
  scored(0, {prompt_token(1, "a", std::nullopt), prompt_token(2, " b", -2.0f)});
  finish("length");
  done(0, 2, 0);

  const Json body = parse(exchange->body());
  EXPECT_EQ(body["choices"][0]["text"], "a b");
  EXPECT_EQ(write_json(body["choices"][0]["logprobs"]["token_logprobs"]), "[null,-2.0]");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(CompletionsTest, EchoesInAStreamBeforeAnyChoiceSpeaks) {
  const auto exchange =
      post("/v1/completions", R"({"prompt":"a b","echo":true,"logprobs":1,"n":2,"stream":true,"max_tokens":1})");
  start(0, 2);
  scored(0, {prompt_token(1, "a", std::nullopt)});
  token("early", 1);
  scored(1, {prompt_token(2, " b", -2.0f)});
  token("late", 0);
  for (const int32_t choice : {0, 1})
    finish("length", choice);
  done(0, 2, 2);

  std::string texts[2];
  std::vector<Json> offsets[2];
  for (const Json& chunk : chunks_of(*exchange)) {
    const Json& choice = chunk["choices"][0];
    const size_t index = choice["index"];
    texts[index] += choice["text"].get<std::string>();
    if (choice["logprobs"].is_object())
      for (const Json& offset : choice["logprobs"]["text_offset"])
        offsets[index].push_back(offset);
  }
  EXPECT_EQ(texts[0], "a blate");
  EXPECT_EQ(texts[1], "a bearly");
  EXPECT_EQ(offsets[0], (std::vector<Json>{0, 1, 3}));
  EXPECT_EQ(offsets[1], (std::vector<Json>{0, 1, 3}));
  EXPECT_TRUE(done_was_said(*exchange));
}

TEST_F(CompletionsTest, EchoesWithoutLogprobs) {
  const auto streamed = complete(R"("echo":true,"stream":true)");
  answer();
  const auto ids = post("/v1/completions", R"({"prompt":[31373],"echo":true})");
  answer(1);

  EXPECT_EQ(chunks_of(*streamed)[0]["choices"][0]["text"], "Once");
  EXPECT_EQ(parse(ids->body())["choices"][0]["text"], "hello one two");
}

// ---- refusals ----

TEST_F(CompletionsTest, RefusesABadBodyBeforeAnythingElse) {
  const auto exchange = complete(R"("top_k":0.01)");

  EXPECT_EQ(exchange->status(), 400);
  const Json error = parse(exchange->body())["error"];
  EXPECT_EQ(error["param"], "top_k");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["code"], "invalid_field");
  EXPECT_TRUE(submitted_.empty());
}

// P04, P05
TEST_F(CompletionsTest, RefusesBrokenTextBeforeItsHead) {
  for (const std::string text : {"\xc4\xe3", R"(x \ud83d)", R"(\ude00 y)"}) {
    const auto exchange = post("/v1/chat/completions",
                               R"({"stream":true,"messages":[{"role":"user","content":")" + text + "\"}]}");
    EXPECT_EQ(exchange->status(), 400);
    EXPECT_EQ(exchange->head()->content_type, "application/json");
    EXPECT_EQ(error_code(*exchange), "malformed");
  }
  EXPECT_FALSE(post("/v1/completions", R"({"prompt":"\ud83d\ude00"})")->head());
  EXPECT_EQ(submitted_.at(0).prompt, "😀");
}

TEST_F(CompletionsTest, GivesEachRefusalOfThePipelineItsStatus) {
  const std::tuple<Error, int, const char*> refusals[] = {{Error::invalid_field, 400, "invalid_field"},
                                                          {Error::prompt_too_long, 400, "context_length_exceeded"},
                                                          {Error::unsupported, 400, "unsupported"},
                                                          {Error::conflict, 409, "conflict"},
                                                          {Error::busy, 429, "busy"},
                                                          {Error::draining, 503, "draining"},
                                                          {Error::device_lost, 503, "device_lost"},
                                                          {Error::internal, 500, "internal"}};
  for (const auto& [error, status, code] : refusals) {
    refusal_ = Failure{error, "", "because"};
    const auto exchange = complete(R"("stream":true)");
    EXPECT_EQ(exchange->status(), status);
    EXPECT_EQ(error_code(*exchange), code);
  }
}

TEST_F(CompletionsTest, ARefusalTellsWhenToTryAgain) {
  refusal_ = Failure{Error::busy, {}, "too many prompts wait", 2'500};

  EXPECT_EQ(complete("")->header("Retry-After"), "3");
}

TEST_F(CompletionsTest, ItsOwnEventsAreNoReplays) {
  on_submit_ = [this] {
    start();
    answer();
  };
  const auto exchange = complete(R"("stream":false)");
  loop_.run();

  EXPECT_EQ(exchange->status(), 200);
  EXPECT_EQ(streams_->stats().replayed, 0u);
}

TEST_F(CompletionsTest, ARejectionBeforeTheHeadKeepsItsStatus) {
  for (const std::string fields : {R"("stream":true)", R"("stream":false)"}) {
    const auto exchange = complete(fields);
    Rejected event;
    event.request = stream(submitted_.size() - 1);
    event.error = "busy";
    event.message = "the queue is full";
    event.retry_after_ms = 1'500;
    say(event);

    EXPECT_EQ(exchange->status(), 429);
    EXPECT_EQ(exchange->header("Retry-After"), "2");
    EXPECT_EQ(parse(exchange->body())["error"]["message"], "the queue is full");
  }
}

// P37
TEST_F(CompletionsTest, AnErrorInMidStreamIsTheLastThingSaid) {
  const auto exchange = complete(R"("stream":true)");
  start();
  token(" one");
  finish("error", 0, 0, "device_lost");
  done();

  const auto data = data_of(exchange->body());
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(parse(data[1])["error"]["code"], "device_lost");
  EXPECT_TRUE(exchange->ended());
  EXPECT_FALSE(done_was_said(*exchange));
}

TEST_F(CompletionsTest, AnErrorIsTheWholeAnswerOfOneThatIsNotStreamed) {
  const auto exchange = complete();
  start();
  token(" one");
  finish("error", 0, 0, "non_finite_logits");

  EXPECT_EQ(exchange->status(), 500);
  EXPECT_EQ(error_code(*exchange), "non_finite_logits");
}

TEST_F(CompletionsTest, OneFailedPromptEndsTheOthers) {
  const auto exchange = post("/v1/completions", R"({"prompt":["a","b"]})");
  start(0);
  start(1);
  finish("error", 0, 1, "device_lost");

  EXPECT_EQ(exchange->status(), 503);
  EXPECT_NE(std::find(cancelled_.begin(), cancelled_.end(), stream(0)), cancelled_.end());
}

TEST_F(CompletionsTest, ACancelledAnswerIsNoSuccess) {
  const auto streamed = complete(R"("stream":true)");
  const auto whole = complete();
  for (const size_t index : {0u, 1u}) {
    start(index);
    token(" one", 0, index);
    finish("cancelled", 0, index);
    done(index);
  }

  EXPECT_FALSE(done_was_said(*streamed));
  const auto data = data_of(streamed->body());
  EXPECT_EQ(parse(data[1])["choices"][0]["finish_reason"], "cancelled");
  EXPECT_EQ(parse(data.back())["error"]["code"], "cancelled");
  EXPECT_EQ(parse(whole->body())["choices"][0]["finish_reason"], "cancelled");
}

TEST_F(CompletionsTest, RefusesToBeginWhileItDrains) {
  api_->drain();

  EXPECT_EQ(complete()->status(), 503);
  EXPECT_EQ(get("/health")->status(), 503);
  EXPECT_EQ(get("/live")->status(), 200);
}

// ---- readers that leave, wait or are slow ----

// P40
TEST_F(CompletionsTest, APeerThatLeavesCancelsItsStream) {
  for (const std::string fields : {R"("stream":true)", R"("stream":false)"}) {
    const auto queued = complete(fields);
    queued->close();
    EXPECT_EQ(cancelled_.back(), stream(submitted_.size() - 1));

    const auto running = complete(fields);
    start(submitted_.size() - 1);
    token(" one", 0, submitted_.size() - 1);
    running->close();
    EXPECT_EQ(cancelled_.back(), stream(submitted_.size() - 1));
  }
  EXPECT_EQ(cancelled_.size(), 4u);
}

TEST_F(CompletionsTest, AStreamThatShouldSurviveItsPeerDoes) {
  complete(R"("stream":true,"survive_disconnect":true)")->close();
  complete(R"("stream":true)", {{"idempotency-key", "k"}})->close();

  EXPECT_TRUE(cancelled_.empty());
  answer(0);
  const auto again = get("/v1/streams/" + to_hex(stream(0)));
  EXPECT_EQ(data_of(again->body()).size(), 5u);
}

TEST_F(CompletionsTest, TheSameKeyJoinsTheSameAnswer) {
  const auto first = complete("", {{"idempotency-key", "k"}});
  const auto second = complete("", {{"idempotency-key", "k"}});
  answer();
  const auto third = complete("", {{"idempotency-key", "k"}});

  EXPECT_EQ(first->header("Idempotent-Replayed"), "");
  for (const auto& later : {second, third}) {
    ASSERT_EQ(later->status(), 200);
    EXPECT_EQ(later->header("Idempotent-Replayed"), "true");
    EXPECT_EQ(parse(later->body())["id"], parse(first->body())["id"]) << "the stream's, which was not opened again";
    EXPECT_EQ(write_json(parse(later->body())["choices"]), write_json(parse(first->body())["choices"]));
  }
  EXPECT_EQ(submitted_.size(), 1u);
}

TEST_F(CompletionsTest, AnotherBodyUnderAKeyIsAConflict) {
  complete("", {{"idempotency-key", "k"}});

  const auto other = complete(R"("max_tokens":3)", {{"idempotency-key", "k"}});
  EXPECT_EQ(other->status(), 409);
  EXPECT_EQ(parse(other->body())["error"]["param"], "Idempotency-Key");
  EXPECT_EQ(complete("", {{"idempotency-key", std::string(257, 'k')}})->status(), 400);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":["a","b"]})", {{"idempotency-key", "l"}})->status(), 400);
}

TEST_F(CompletionsTest, PingsWhileNothingIsSaid) {
  const auto exchange = complete(R"("stream":true)");
  EXPECT_FALSE(exchange->head());

  loop_.advance(15s);
  EXPECT_EQ(exchange->status(), 200) << "a queued request shows its head before proxies lose patience";
  loop_.advance(31s);
  EXPECT_EQ(exchange->body(), ": ping\n\n: ping\n\n: ping\n\n");

  Rejected event;
  event.request = stream();
  event.error = "prompt_too_long";
  say(event);
  EXPECT_EQ(parse(data_of(exchange->body()).at(0))["error"]["code"], "context_length_exceeded");
}

TEST_F(CompletionsTest, KeepsASlowPeersAnswerInTheLog) {
  options_.max_queued_bytes = 10'000;
  restart();
  const auto exchange = complete(R"("stream":true,"max_tokens":500)");
  exchange->be_slow();
  start();
  for (int i = 0; i < 300; ++i)
    token(" word");
  EXPECT_LE(exchange->most_queued(), 10'000u);
  const size_t before = exchange->body().size();

  finish("stop");
  done();
  for (int i = 0; i < 100 && !exchange->ended(); ++i) {
    exchange->drain();
    loop_.run();
  }
  EXPECT_GT(exchange->body().size(), before);
  EXPECT_LE(exchange->most_queued(), 10'000u);
  EXPECT_TRUE(exchange->ended());
  EXPECT_TRUE(done_was_said(*exchange));
  EXPECT_EQ(chunks_of(*exchange).size(), 301u);
}

TEST_F(CompletionsTest, TellsAReaderThatIsTooSlowWhereToComeBack) {
  options_.max_queued_bytes = 1'000;
  options_.max_lag_bytes = 20'000;
  restart();
  const auto exchange = complete(R"("stream":true,"max_tokens":500)");
  exchange->be_slow();
  start();
  for (int i = 0; i < 400; ++i)
    token(" word");
  for (int i = 0; i < 100 && !exchange->ended(); ++i)
    exchange->drain();

  EXPECT_TRUE(exchange->ended());
  EXPECT_NE(exchange->body().find("event: lagging\n"), std::string::npos);
  const Json last = parse(data_of(exchange->body()).back());
  EXPECT_EQ(last["error"]["code"], "lagging");
  EXPECT_EQ(last["stream"], to_hex(stream()));
  EXPECT_TRUE(cancelled_.empty()) << "it may come back";

  const auto again = get("/v1/streams/" + to_hex(stream()), {}, {{"from_seq", last["from_seq"]}});
  const int64_t sent = static_cast<int64_t>(chunks_of(*exchange).size()) - 1;
  bool found = false;
  for (const std::string& data : data_of(again->body())) {
    const Json event = parse(data);
    if (event["type"] != "token" || std::exchange(found, true))
      continue;
    EXPECT_EQ(event["seq"], sent) << "nothing is lost and nothing comes twice";
  }
  EXPECT_TRUE(found);
}

TEST_F(CompletionsTest, RefusesToCollectMoreThanItMayKeep) {
  options_.max_answer_bytes = 1'000;
  restart();
  const auto exchange = complete();
  start();
  for (int i = 0; i < 3; ++i)
    token(std::string(400, 'x'));

  EXPECT_EQ(exchange->status(), 400);
  EXPECT_EQ(error_code(*exchange), "answer_too_large");
  EXPECT_EQ(cancelled_.size(), 1u);
}

TEST_F(CompletionsTest, BoundsWhatAllCollectedAnswersTakeTogether) {
  options_.max_all_answers_bytes = 20'000;
  restart();
  const auto first = complete(), second = complete(), streamed = complete(R"("stream":true)");
  for (size_t i = 0; i < 3; ++i)
    start(i);
  token(std::string(8'000, 'x'), 0, 0);

  token(std::string(8'000, 'x'), 0, 1);
  token(std::string(8'000, 'x'), 0, 2);

  EXPECT_EQ(second->status(), 429);
  EXPECT_EQ(error_code(*second), "busy");
  EXPECT_EQ(second->header("Retry-After"), "1");
  EXPECT_EQ(cancelled_, std::vector{stream(1)});
  EXPECT_EQ(streamed->status(), 200);
  EXPECT_EQ(complete()->status(), 0) << "there is room for a small one";
  EXPECT_EQ(complete()->status(), 429);
  EXPECT_EQ(submitted_.size(), 4u) << "nothing runs for one that there is no room for";
  finish("stop");
  done();
  EXPECT_EQ(first->status(), 200);
}

TEST_F(CompletionsTest, GivesBackTheMemoryOfAnAnswerHoweverItEnds) {
  options_.max_all_answers_bytes = 5'000; // for one answer
  restart();
  const auto expect_room = [&](const char* after) {
    const auto exchange = complete();
    ASSERT_EQ(exchange->status(), 0) << after;
    answer(submitted_.size() - 1);
    EXPECT_EQ(exchange->status(), 200) << after;
  };
  expect_room("the start");
  expect_room("an answer");
  complete()->close();
  expect_room("a peer that left");
  complete();
  finish("error", 0, submitted_.size() - 1, "internal");
  expect_room("an error");
  const auto unlucky = complete();
  unlucky->fail_answer();
  answer(submitted_.size() - 1);
  EXPECT_EQ(unlucky->status(), 500);
  expect_room("an answer that could not be given");
  complete()->fail_answer();
  finish("error", 0, submitted_.size() - 1, "internal");
  expect_room("an error that could not be told");
  refusal_ = Failure{Error::busy, "", "full"};
  EXPECT_EQ(complete()->status(), 429);
  refusal_.reset();
  expect_room("a refusal");
}

TEST_F(CompletionsTest, CountsAnAnswerUntilItsPeerHasIt) {
  options_.max_all_answers_bytes = 5'000;
  restart();
  const auto slow = complete();
  slow->be_slow();
  answer();
  ASSERT_EQ(slow->status(), 200);

  EXPECT_EQ(complete()->status(), 429);
  slow->drain();
  EXPECT_EQ(complete()->status(), 0);
}

TEST_F(CompletionsTest, CollectsWhatTheLogAloneCouldNotHold) {
  streams_options_.stream_log_bytes = 4'000;
  restart();
  const auto exchange = complete();
  start();
  for (int i = 0; i < 100; ++i)
    token(std::string(100, 'x'));
  finish("stop");
  done();

  ASSERT_EQ(exchange->status(), 200);
  EXPECT_EQ(parse(exchange->body())["choices"][0]["text"].get<std::string>().size(), 10'000u);
}

TEST_F(CompletionsTest, AStreamThatLeftItsLogIsAnError) {
  streams_options_.stream_log_bytes = 4'000;
  options_.max_queued_bytes = 500;
  restart();
  const auto exchange = complete(R"("stream":true)");
  exchange->be_slow();
  start();
  for (int i = 0; i < 100; ++i)
    token(std::string(100, 'x'));
  for (int i = 0; i < 100 && !exchange->ended(); ++i)
    exchange->drain();

  EXPECT_TRUE(exchange->ended());
  EXPECT_NE(exchange->body().find("event: lagging\n"), std::string::npos);
  EXPECT_FALSE(done_was_said(*exchange));
}

TEST_F(CompletionsTest, ParsesALongBodyOffTheLoop) {
  const std::string text(200'000, 'a');
  const auto exchange = post("/v1/completions", R"({"max_tokens":-1,"prompt":")" + text + "\"}");
  EXPECT_FALSE(exchange->head());

  wait_for(*exchange);
  EXPECT_EQ(exchange->status(), 400);
}

TEST_F(CompletionsTest, AnswersWhereMemoryLacksForTheWorkersResult) {
  Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers = {{"content-type", "application/json"}};
  request.body = R"({"prompt":")" + std::string(200'000, 'a') + "\"}";
  const auto exchange = std::make_shared<FakeExchange>(loop_, std::move(request));
  exchange->fail_posts(3); // of the result, and of its refusal twice

  api_->handle(exchange);

  wait_for(*exchange);
  EXPECT_EQ(exchange->status(), 500);
  EXPECT_EQ(error_code(*exchange), "internal");
  EXPECT_TRUE(submitted_.empty());
}

TEST_F(CompletionsTest, APeerThatLeftWhileItsBodyWasParsedOpensNothing) {
  Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers.emplace("content-type", "application/json");
  request.body = R"({"prompt":")" + std::string(200'000, 'a') + "\"}";
  const auto exchange = std::make_shared<FakeExchange>(loop_, std::move(request));
  api_->handle(exchange);
  exchange->close(); // before the loop hears of what was parsed
  const auto next = post("/tokenize", R"({"content":")" + std::string(100'000, 'a') + "\"}");

  wait_for(*next);
  EXPECT_TRUE(submitted_.empty());
}

} // namespace
} // namespace millrace::http::test
