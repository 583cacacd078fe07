#include "tests/gateway/http/api_test.hpp"

namespace millrace::http::test {
namespace {

using namespace std::chrono_literals;

class RoutesTest : public ApiTest {
protected:
  static Json json_of(const FakeExchange& exchange) {
    auto read = read_json(exchange.body(), {});
    if (!std::holds_alternative<Json>(read)) {
      ADD_FAILURE() << exchange.body();
      return {};
    }
    return std::get<Json>(std::move(read));
  }
  std::shared_ptr<FakeExchange> remove(const std::string& path, const std::string& who = "") {
    Request request;
    request.method = "DELETE";
    request.path = path;
    request.principal.name = who;
    return send(std::move(request));
  }
  std::shared_ptr<FakeExchange> run(const std::string& fields = "") {
    return post("/v1/completions", R"({"prompt":"Once","stream":true)" + (fields.empty() ? "" : "," + fields) + "}");
  }
};

TEST_F(RoutesTest, TellsItsModel) {
  EXPECT_EQ(get("/v1/models")->body(),
            R"({"object":"list","data":[{"id":"tales","object":"model","created":1700000000,"owned_by":"millrace",)"
            R"("max_model_len":1024}]})");
  EXPECT_EQ(json_of(*get("/v1/models/tales"))["id"], "tales");
  EXPECT_EQ(get("/v1/models/other")->status(), 404);
  EXPECT_EQ(json_of(*get("/v1/models/other"))["error"]["code"], "model_not_found");
}

TEST_F(RoutesTest, HealthIsTheEngines) {
  const std::pair<const char*, int> states[] = {{"serving", 200}, {"stalled", 503}, {"dead", 503}, {"draining", 503}};
  for (const auto& [state, status] : states) {
    server_stats_.state = state;
    EXPECT_EQ(get("/health")->status(), status) << state;
    EXPECT_EQ(get("/ready")->status(), status) << state;
    EXPECT_EQ(get("/live")->status(), 200) << state;
  }
  EXPECT_EQ(json_of(*get("/health"))["status"], "draining");
}

TEST_F(RoutesTest, TellsMetricsVersionAndWhatThereIs) {
  EXPECT_NE(get("/metrics")->body().find("model_name=\"tales\""), std::string::npos);
  EXPECT_EQ(get("/metrics")->head()->content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(get("/version")->body(), R"({"version":"1.2.3"})");
  EXPECT_NE(get("/")->body().find("POST /v1/completions"), std::string::npos);
}

TEST_F(RoutesTest, UnknownPathsAreNotFound) {
  for (const char* path : {"/v1", "/v1/model", "/v1/streams/", "/v1/completions/", "/healthz", "", "/v1/models/"})
    EXPECT_EQ(get(path)->status(), 404) << path;
  EXPECT_EQ(json_of(*get("/nowhere"))["error"]["code"], "not_found");
}

TEST_F(RoutesTest, WrongMethodsAreToldTheRightOnes) {
  EXPECT_EQ(get("/v1/completions")->status(), 405);
  EXPECT_EQ(get("/v1/completions")->header("Allow"), "POST");
  EXPECT_EQ(post("/v1/streams/00", "{}")->header("Allow"), "GET, DELETE");
  EXPECT_EQ(remove("/health")->header("Allow"), "GET");
}

TEST_F(RoutesTest, TakesBodiesOfJsonOnly) {
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""})
    EXPECT_EQ(post("/v1/completions", R"({"prompt":"x"})", {{"content-type", type}})->status(), 415) << type;
  EXPECT_EQ(post("/v1/completions", "{}", {{"content-type", "Application/JSON ; charset=utf-8"}})->status(), 400);
  Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = R"({"prompt":"x"})";
  EXPECT_EQ(send(request)->status(), 415);
}

// ---- streams ----

TEST_F(RoutesTest, AStreamIsReadAgainFromItsBeginning) {
  const auto first = run();
  answer();
  const auto again = get("/v1/streams/" + to_hex(stream()));

  ASSERT_EQ(again->status(), 200);
  EXPECT_EQ(again->head()->content_type, "text/event-stream");
  EXPECT_NE(again->body().find("event: started\n"), std::string::npos);
  EXPECT_NE(again->body().find("id: 0:1\nevent: token\ndata: {\"type\":\"token\",\"request\":\"" + to_hex(stream())),
            std::string::npos);
  EXPECT_EQ(last_id_of(again->body()), "0:2,end");
  EXPECT_TRUE(again->ended());
}

TEST_F(RoutesTest, AStreamIsReadOnFromWhereItsReaderWas) {
  run();
  start();
  token(" one");
  token(" two");
  const std::string path = "/v1/streams/" + to_hex(stream());

  const auto by_query = get(path, {}, {{"from_seq", "1"}});
  const auto by_header = get(path, {{"last-event-id", "0:0"}}, {{"from_seq", "0"}});
  token(" three");
  for (const auto& reader : {by_query, by_header}) {
    EXPECT_EQ(reader->body().find(" one"), std::string::npos);
    EXPECT_NE(reader->body().find(" two"), std::string::npos);
    EXPECT_NE(reader->body().find(" three"), std::string::npos) << "as it comes";
    EXPECT_EQ(last_id_of(reader->body()), "0:2");
    EXPECT_FALSE(reader->ended());
  }
}

TEST_F(RoutesTest, AReaderThatHasReadAllIsToldToStayAway) {
  run();
  answer();

  const auto again = get("/v1/streams/" + to_hex(stream()), {{"last-event-id", "0:2,end"}});
  EXPECT_EQ(again->status(), 204);
  EXPECT_EQ(again->body(), "");
}

TEST_F(RoutesTest, AReaderThatLeavesCancelsNothing) {
  const auto first = run();
  start();
  get("/v1/streams/" + to_hex(stream()))->close();

  EXPECT_TRUE(cancelled_.empty());
  token(" one");
  EXPECT_NE(first->body().find(" one"), std::string::npos);
}

TEST_F(RoutesTest, RefusesPositionsThatAreNone) {
  run();
  start();
  const std::string path = "/v1/streams/" + to_hex(stream());
  for (const std::string seq : {"x", "-1", "0:x", "1:0", "99999999999999999999"})
    EXPECT_EQ(json_of(*get(path, {}, {{"from_seq", seq}}))["error"]["param"], "from_seq") << seq;
  for (const char* id : {"7", "0:1end"})
    EXPECT_EQ(json_of(*get(path, {{"last-event-id", id}}))["error"]["param"], "Last-Event-ID") << id;
}

TEST_F(RoutesTest, TellsWhereAStreamStands) {
  run();
  start();
  token(" one");
  token(" two");

  const auto exchange = get("/v1/streams/" + to_hex(stream()), {{"accept", "application/json"}});
  const Json snapshot = json_of(*exchange);
  EXPECT_EQ(snapshot["type"], "snapshot");
  EXPECT_EQ(snapshot["live"], true);
  EXPECT_EQ(snapshot["choices"][0]["text"], " one two");
  EXPECT_EQ(snapshot["choices"][0]["next_seq"], 2);
}

TEST_F(RoutesTest, AnUnknownStreamAndAnothersAreTheSame) {
  Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers["content-type"] = "application/json";
  request.body = R"({"prompt":"x"})";
  request.principal.name = "http:alice";
  send(request);
  const std::string alices = "/v1/streams/" + to_hex(stream());

  for (const std::string& path : {alices, "/v1/streams/" + std::string(32, '0'), std::string("/v1/streams/xyz")}) {
    EXPECT_EQ(get(path)->status(), 404) << path;
    EXPECT_EQ(remove(path)->status(), 404) << path;
    EXPECT_EQ(json_of(*get(path))["error"]["code"], "unknown_request");
  }
  EXPECT_EQ(remove(alices, "http:alice")->status(), 200);
  EXPECT_EQ(cancelled_, std::vector<StreamId>{stream()});
}

TEST_F(RoutesTest, PingsASilentStream) {
  run();
  start();
  const auto reader = get("/v1/streams/" + to_hex(stream()));
  const size_t before = reader->body().size();
  loop_.advance(30s);

  EXPECT_TRUE(reader->body().ends_with(": ping\n\n"));
  EXPECT_GT(reader->body().size(), before);
}

TEST_F(RoutesTest, CountsAnswersByRoute) {
  get("/v1/models/tales");
  get("/nowhere/with/my/secret");
  const std::string metrics = get("/metrics")->body();

  EXPECT_NE(metrics.find("/v1/models/{id}"), std::string::npos);
  EXPECT_EQ(metrics.find("secret"), std::string::npos);
}

// ---- text ----

TEST_F(RoutesTest, Tokenizes) {
  EXPECT_EQ(post("/tokenize", R"({"content":"Hello world"})")->body(),
            R"({"tokens":[15496,995],"count":2,"max_model_len":1024})");
  EXPECT_EQ(post("/tokenize", R"({"content":"Hello","with_pieces":true})")->body(),
            R"({"tokens":[{"id":15496,"piece":"Hello"}],"count":1,"max_model_len":1024})");
  EXPECT_EQ(json_of(*post("/tokenize", R"({"content":"","with_pieces":true})"))["tokens"].size(), 0u);
}

TEST_F(RoutesTest, TokenizesControlTokensOnlyWhenAsked) {
  const auto count = [&](const std::string& fields) -> int {
    return json_of(*post("/tokenize", R"({"content":"<|endoftext|>")" + fields + "}"))["count"];
  };
  EXPECT_GT(count(""), 1);
  EXPECT_EQ(count(R"(,"parse_special":true)"), 1);
}

TEST_F(RoutesTest, PutsBosBeforeAPromptAndNotBeforeContent) {
  options_.tokenizer = golden_tokenizer("mistral-v1-vocab-only");
  restart();
  const auto ids = [&](const std::string& body) { return json_of(*post("/tokenize", body))["tokens"]; };

  EXPECT_EQ(ids(R"({"prompt":"a"})")[0], options_.tokenizer->bos());
  EXPECT_NE(ids(R"({"content":"a"})")[0], options_.tokenizer->bos());
  EXPECT_EQ(ids(R"({"content":"a","add_special":true})"), ids(R"({"prompt":"a"})"));
}

// P08
TEST_F(RoutesTest, DetokenizesWhatItTokenized) {
  for (const char* vocab : {"ggml-vocab-gpt-2", "mistral-v1-vocab-only"}) {
    options_.tokenizer = golden_tokenizer(vocab);
    options_.limits.vocab_size = options_.tokenizer->vocab_size();
    restart();
    for (const std::string text : {" ...", " n't", "é 😀 𠮷", "  two  spaces ", "a\\n\\tb"}) {
      const Json tokens = json_of(*post("/tokenize", "{\"content\":\"" + text + "\"}"))["tokens"];
      const auto exchange = post("/detokenize", "{\"tokens\":" + write_json(tokens) + "}");
      EXPECT_EQ(exchange->body(), "{\"content\":\"" + text + "\"}") << vocab;
    }
  }
}

TEST_F(RoutesTest, TellsHowTokensAreSpelledAndWhatTheyStandFor) {
  EXPECT_EQ(post("/detokenize", R"({"tokens":[995,50256],"with_pieces":true})")->body(),
            "{\"content\":\" world\",\"pieces\":[{\"piece\":\"Ġworld\",\"bytes\":[32,119,111,114,108,100]},"
            "{\"piece\":\"<|endoftext|>\",\"bytes\":[]}]}");
}

TEST_F(RoutesTest, RefusesBadTextRequestsByName) {
  const auto param = [&](const std::string& path, const std::string& body) {
    const auto exchange = post(path, body);
    EXPECT_EQ(exchange->status(), 400) << body;
    const Json name = json_of(*exchange)["error"]["param"];
    return name.is_string() ? name.get<std::string>() : "";
  };
  EXPECT_EQ(param("/tokenize", "{}"), "content");
  EXPECT_EQ(param("/tokenize", R"({"content":1})"), "content");
  EXPECT_EQ(param("/tokenize", R"({"content":"x","prompt":"y"})"), "content");
  EXPECT_EQ(param("/tokenize", R"({"content":"x","with_pieces":1})"), "with_pieces");
  EXPECT_EQ(param("/tokenize", R"({"messages":[{"role":"user","content":"x"}]})"), "messages");
  EXPECT_EQ(param("/detokenize", "{}"), "tokens");
  EXPECT_EQ(param("/detokenize", R"({"tokens":[-1]})"), "tokens[0]");
  EXPECT_EQ(param("/detokenize", R"({"tokens":[1,50257]})"), "tokens[1]");
  EXPECT_EQ(param("/detokenize", R"({"tokens":[1,"x"]})"), "tokens[1]");
}

// P11: a long text is tokenized beside the loop, which answers others meanwhile.
TEST_F(RoutesTest, TokenizesLongTextsOffTheLoop) {
  const auto exchange = post("/tokenize", R"({"content":")" + std::string(100'000, 'a') + "\"}");
  EXPECT_FALSE(exchange->head());
  EXPECT_EQ(get("/live")->status(), 200);

  wait_for(*exchange);
  EXPECT_EQ(exchange->status(), 200);
}

TEST_F(RoutesTest, RefusesLongTextsWhenTooManyWait) {
  std::vector<std::shared_ptr<FakeExchange>> exchanges;
  for (int i = 0; i < 200; ++i)
    exchanges.push_back(post("/tokenize", R"({"content":")" + std::string(20'000, 'a') + "\"}"));

  int refused = 0;
  for (const auto& exchange : exchanges) {
    wait_for(*exchange);
    refused += exchange->status() == 429;
    EXPECT_TRUE(exchange->status() == 200 || exchange->header("Retry-After") == "1");
  }
  EXPECT_GT(refused, 0);
}

} // namespace
} // namespace millrace::http::test
