#include "gateway/http/api.hpp"

#include "gateway/http/api/body.hpp"
#include "gateway/http/api/call.hpp"
#include "gateway/http/api/completion_answer.hpp"
#include "gateway/http/api/completion_request.hpp"
#include "gateway/http/api/stream_answer.hpp"
#include "gateway/http/api/text_routes.hpp"
#include "gateway/http/api/worker.hpp"
#include "gateway/json.hpp"

#include <atomic>
#include <map>
#include <thread>

namespace millrace::http {
namespace {

constexpr size_t kInlineBody = 64u << 10; // longer ones are parsed on the worker
constexpr size_t kInlineText = 4u << 10;  // likewise for what is also tokenized
constexpr size_t kWorkerJobs = 64;
constexpr size_t kWorkerBytes = 32u << 20;
constexpr int kPostTries = 100;
constexpr std::chrono::milliseconds kPostRetry{10};

Response json(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

Response text(std::string body, std::string type = "text/plain; charset=utf-8") {
  Response response;
  response.content_type = std::move(type);
  response.body = std::move(body);
  return response;
}

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ApiError model_not_found(std::string param) {
  return {404, "model_not_found", std::move(param), "there is no such model here; GET /v1/models names those there are",
          0};
}

/// A page of another origin can make a browser send bodies of some types, or of none, without asking first: those are not
/// taken.
bool is_json(const Call& call) {
  const std::string* type = call.header("content-type");
  if (!type)
    return false;
  std::string name = type->substr(0, type->find(';'));
  name.erase(name.find_last_not_of(" \t") + 1);
  for (char& c : name)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name == "application/json";
}

/// From the worker, where memory may be short: that may pass, and the client waits.
void post_patiently(Call& call, const std::function<void()>& answer) {
  for (int tries = 1;; ++tries) {
    try {
      return call.post(answer);
    } catch (const std::exception&) {
      if (tries == kPostTries)
        throw;
      std::this_thread::sleep_for(kPostRetry);
    }
  }
}

} // namespace

struct Api::State : std::enable_shared_from_this<Api::State> {
  using CallPtr = std::shared_ptr<Call>;
  /// `id` is what stands in the place of {id}.
  using Handler = void (State::*)(CallPtr call, const std::string& id);
  struct Route {
    std::string_view method, pattern;
    Handler handler;
  };
  static const Route kRoutes[];

  State(Streams& streams_in, std::shared_ptr<Metrics> metrics_in, ApiOptions options_in)
      : streams(streams_in), metrics(std::move(metrics_in)), options(std::move(options_in)) {
    rules.model = options.model;
    rules.require_known_model = options.require_known_model;
    rules.limits = options.limits;
    rules.json.max_depth = options.max_json_depth;
    rules.tokenizer = options.tokenizer;
    bounds = {options.ping, options.max_queued_bytes, options.max_lag_bytes, options.max_answer_bytes,
              std::make_shared<AnswerMemory>(options.max_all_answers_bytes)};
  }

  // ---- routes ----

  void dispatch(std::shared_ptr<Exchange> exchange);
  void about(CallPtr call, const std::string&);
  void version(CallPtr call, const std::string&);
  void health(CallPtr call, const std::string&);
  void live(CallPtr call, const std::string&);
  void scrape(CallPtr call, const std::string&);
  void models(CallPtr call, const std::string&);
  void model(CallPtr call, const std::string& id);
  void complete(CallPtr call, const std::string&) { generate(std::move(call), Style::completion); }
  void chat(CallPtr call, const std::string&) { generate(std::move(call), Style::chat); }
  void encode(CallPtr call, const std::string&);
  void decode(CallPtr call, const std::string&);
  void read_stream(CallPtr call, const std::string& id);
  void cancel_stream(CallPtr call, const std::string& id);

  // ---- what they share ----

  void generate(CallPtr call, Style style);
  void open(CallPtr call, std::variant<CompletionRequest, ApiError> parsed);
  std::string model_object() const;
  template <class A, class... Args> void start(const CallPtr& call, Args&&... args);
  template <class Work, class Use> void with_body(CallPtr call, size_t inline_bytes, Work work, Use use);

  Streams& streams;
  std::shared_ptr<Metrics> metrics;
  ApiOptions options;
  RequestRules rules;
  AnswerBounds bounds;
  std::atomic<bool> draining = false;
  std::map<const Answer*, std::shared_ptr<Answer>> answers; // those that are not over
  Worker worker{kWorkerJobs, kWorkerBytes};                 // last: its jobs use the others
};

const Api::State::Route Api::State::kRoutes[] = {
    {"GET", "/", &State::about},
    {"GET", "/version", &State::version},
    {"GET", "/health", &State::health},
    {"GET", "/ready", &State::health},
    {"GET", "/live", &State::live},
    {"GET", "/metrics", &State::scrape},
    {"GET", "/v1/models", &State::models},
    {"GET", "/v1/models/{id}", &State::model},
    {"POST", "/v1/completions", &State::complete},
    {"POST", "/v1/chat/completions", &State::chat},
    {"POST", "/tokenize", &State::encode},
    {"POST", "/detokenize", &State::decode},
    {"GET", "/v1/streams/{id}", &State::read_stream},
    {"DELETE", "/v1/streams/{id}", &State::cancel_stream},
};

namespace {

/// The part of the path that stands for {id}, empty for a pattern without; nullopt if the path is another.
std::optional<std::string> match(std::string_view pattern, std::string_view path) {
  static constexpr std::string_view kId = "{id}";
  if (!pattern.ends_with(kId))
    return path == pattern ? std::optional<std::string>("") : std::nullopt;
  pattern.remove_suffix(kId.size());
  if (!path.starts_with(pattern) || path.size() == pattern.size())
    return std::nullopt;
  return std::string(path.substr(pattern.size()));
}

} // namespace

void Api::State::dispatch(std::shared_ptr<Exchange> exchange) {
  const Request& request = exchange->request();
  std::string allowed;
  std::string_view known = "other";
  for (const Route& route : kRoutes) {
    const auto id = match(route.pattern, request.path);
    if (!id)
      continue;
    if (request.method == route.method) {
      const CallPtr call = Call::make(std::move(exchange), route.pattern, metrics);
      try {
        (this->*route.handler)(call, *id);
      } catch (const std::exception&) { // for want of memory, most likely
        if (!call->begun())
          call->respond(api_error_of(to_string(Error::internal)));
      }
      return;
    }
    known = route.pattern;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  const CallPtr call = Call::make(std::move(exchange), known, metrics);
  if (allowed.empty())
    return call->respond(not_found("there is nothing at this path; GET / tells what there is"));
  Response response = to_response({405, "method_not_allowed", {}, "this path takes " + allowed, 0});
  response.headers.emplace_back("Allow", allowed);
  call->respond(std::move(response));
}

/// Runs `work` on the body, here or, if it is long, on the worker, and gives what comes of it to `use`, here. `work` must
/// not touch the state.
template <class Work, class Use>
void Api::State::with_body(CallPtr call, size_t inline_bytes, Work work, Use use) {
  if (!is_json(*call))
    return call->respond({415, "unsupported_media_type", "Content-Type", "Content-Type must be application/json", 0});
  std::string body = call->take_body();
  const size_t bytes = body.size();
  if (bytes <= inline_bytes)
    return use(*this, call, work(body));
  std::function<void()> failed = [call] { call->respond(api_error_of(to_string(Error::internal))); };
  auto job = [weak = weak_from_this(), call, body = std::move(body), work, use, failed = std::move(failed)]() mutable {
    try {
      auto result = work(body);
      call->post([weak, call, use, result = std::move(result)]() mutable {
        if (const auto self = weak.lock(); self && !call->over())
          use(*self, call, std::move(result));
      });
    } catch (const std::exception&) {
      body = {}; // the largest part of what memory may lack for
      post_patiently(*call, failed);
    }
  };
  if (!worker.submit(bytes, std::move(job)))
    call->respond(api_error(Failure{Error::busy, {}, {}}));
}

/// Keeps an answer until it is over.
template <class A, class... Args> void Api::State::start(const CallPtr& call, Args&&... args) {
  auto name = std::make_shared<const Answer*>(nullptr);
  auto answer = std::make_shared<A>(streams, call, std::forward<Args>(args)..., bounds,
                                    [this, name] { answers.erase(*name); });
  *name = answer.get();
  answers.emplace(answer.get(), answer);
  answer->start();
}

// ---- the server ----

void Api::State::about(CallPtr call, const std::string&) {
  std::string page = "Millrace: language models served as a pipeline of actors.\n\n";
  for (const Route& route : kRoutes)
    page += std::string(route.method) + ' ' + std::string(route.pattern) + '\n';
  call->respond(text(std::move(page)));
}

void Api::State::version(CallPtr call, const std::string&) {
  std::string body = "{\"version\":";
  append_json(body, std::string_view{streams.server_stats(0).version});
  call->respond(json(body + '}'));
}

/// Whether work gets done, as the engine tells it. The one answer for health and readiness.
void Api::State::health(CallPtr call, const std::string&) {
  std::string state = streams.server_stats(0).state;
  if (draining && state != "dead")
    state = "draining";
  const bool serving = state.empty() || state == "serving";
  std::string body = "{\"status\":";
  append_json(body, std::string_view{serving ? "ok" : state});
  call->respond(json(body + '}', serving ? 200 : 503));
}

void Api::State::live(CallPtr call, const std::string&) {
  call->respond(json("{\"status\":\"ok\"}"));
}

void Api::State::scrape(CallPtr call, const std::string&) {
  if (!metrics)
    return call->respond(not_found("this server keeps no metrics"));
  call->respond(text(metrics->scrape(streams.server_stats(0), streams.stats()), "text/plain; version=0.0.4; charset=utf-8"));
}

// ---- models ----

std::string Api::State::model_object() const {
  std::string out = "{\"id\":";
  append_json(out, std::string_view{options.model});
  out += ",\"object\":\"model\",\"created\":";
  append_json(out, options.created);
  out += ",\"owned_by\":\"millrace\",\"max_model_len\":";
  append_json(out, int64_t{options.limits.context_length});
  return out + '}';
}

void Api::State::models(CallPtr call, const std::string&) {
  call->respond(json("{\"object\":\"list\",\"data\":[" + model_object() + "]}"));
}

void Api::State::model(CallPtr call, const std::string& id) {
  if (id != options.model)
    return call->respond(model_not_found("model"));
  call->respond(json(model_object()));
}

// ---- generation ----

void Api::State::generate(CallPtr call, Style style) {
  if (draining)
    return call->respond(api_error_of(to_string(Error::draining)));
  with_body(
      std::move(call), kInlineBody,
      [style, rules = rules](std::string_view body) { return read_completion_request(style, body, rules); },
      [](State& self, CallPtr answered, auto parsed) { self.open(std::move(answered), std::move(parsed)); });
}

void Api::State::open(CallPtr call, std::variant<CompletionRequest, ApiError> parsed) {
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return call->respond(*error);
  CompletionRequest& request = std::get<CompletionRequest>(parsed);
  if (const std::string* key = call->header("idempotency-key")) {
    if (request.prompts.size() > 1)
      return call->respond(unsupported("Idempotency-Key", "needs a request with one prompt"));
    request.prompts[0].idempotency_key = *key;
    if (const auto failure = validate(request.prompts[0], rules.limits))
      return call->respond(api_error(*failure));
  }
  AnswerHead head;
  head.style = request.style;
  head.created = unix_now();
  head.model = options.model;
  head.n = request.n;
  head.logprobs = request.logprobs;
  head.include_usage = request.include_usage;
  head.echo = request.echo;
  head.scores_prompt = !request.echo.empty() && request.logprobs;
  head.tokenizer = options.tokenizer;
  start<CompletionAnswer>(call, std::move(request), std::move(head));
}

// ---- text ----

void Api::State::encode(CallPtr call, const std::string&) {
  with_body(
      std::move(call), kInlineText,
      [rules = rules, chat_template = options.chat_template](std::string_view body) {
        return tokenize(body, rules, chat_template.get());
      },
      [](State&, const CallPtr& answered, Response response) { answered->respond(std::move(response)); });
}

void Api::State::decode(CallPtr call, const std::string&) {
  with_body(
      std::move(call), kInlineText, [rules = rules](std::string_view body) { return detokenize(body, rules); },
      [](State&, const CallPtr& answered, Response response) { answered->respond(std::move(response)); });
}

// ---- streams ----

/// Server-sent events, or what there is so far for who asks for JSON.
void Api::State::read_stream(CallPtr call, const std::string& id) {
  const auto stream = stream_id_from_hex(id);
  if (!stream || !streams.may_read(*stream, call->request().principal))
    return call->respond(api_error_of(to_string(Error::unknown_request)));

  const std::string* accept = call->header("accept");
  if (accept && accept->find("application/json") != accept->npos &&
      accept->find("text/event-stream") == accept->npos) {
    const auto snapshot = streams.snapshot(*stream);
    return snapshot ? call->respond(json(to_json(*snapshot)))
                    : call->respond(api_error_of(to_string(Error::unknown_request)));
  }

  Cursor from;
  const size_t choices = streams.next_seqs(*stream).size();
  const auto& query = call->request().query;
  std::string field;
  std::optional<Cursor> given = Cursor{};
  if (const std::string* last = call->header("last-event-id")) { // a browser repeats the first address with it
    field = "Last-Event-ID";
    given = cursor_after(*last);
  } else if (const auto seq = query.find("from_seq"); seq != query.end()) {
    field = "from_seq";
    given = cursor_from(seq->second, choices);
  }
  if (!given || given->next.size() > choices)
    return call->respond(bad_field(field, "must be \"choice:seq\" of each choice, as the ids of events are"));
  if (given->ended) { // read to its end; 204 keeps a browser from coming back
    Response nothing;
    nothing.status = 204;
    nothing.content_type.clear();
    return call->respond(std::move(nothing));
  }
  start<StreamAnswer>(call, *stream, *given);
}

void Api::State::cancel_stream(CallPtr call, const std::string& id) {
  const auto stream = stream_id_from_hex(id);
  if (!stream)
    return call->respond(api_error_of(to_string(Error::unknown_request)));
  if (const auto failure = streams.cancel(*stream, call->request().principal, call->origin()))
    return call->respond(api_error(*failure));
  std::string body = "{\"id\":";
  append_json(body, *stream);
  call->respond(json(body + ",\"object\":\"stream\",\"cancelled\":true}"));
}

// ---- the API ----

Api::Api(Streams& streams, std::shared_ptr<Metrics> metrics, ApiOptions options)
    : state_(std::make_shared<State>(streams, std::move(metrics), std::move(options))) {}

Api::~Api() {
  const auto answers = std::move(state_->answers);
  state_->answers.clear();
  for (const auto& [key, answer] : answers)
    answer->stop();
}

void Api::handle(std::shared_ptr<Exchange> exchange) {
  state_->dispatch(std::move(exchange));
}

void Api::drain() {
  state_->draining = true;
}

std::vector<std::string> Api::open_paths() {
  return {"/health", "/ready", "/live"};
}

} // namespace millrace::http
