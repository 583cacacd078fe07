#include "gateway/http/api/completion_answer.hpp"

#include "gateway/http/api/sse.hpp"

#include <utility>

namespace millrace::http {
namespace {

constexpr size_t kLeastMemory = 4u << 10; // of an answer that has no text yet

template <class... F> struct Overloaded : F... {
  using F::operator()...;
};
template <class... F> Overloaded(F...) -> Overloaded<F...>;

} // namespace

CompletionAnswer::CompletionAnswer(Streams& streams, std::shared_ptr<Call> call, CompletionRequest request,
                                   AnswerHead head, const AnswerBounds& bounds, std::function<void()> on_over)
    : streams_(streams), call_(std::move(call)), request_(std::move(request)), head_(std::move(head)),
      bounds_(bounds), output_(call_, bounds.max_queued_bytes), on_over_(std::move(on_over)) {
  parts_.resize(request_.prompts.size());
  for (Generate& prompt : request_.prompts) {
    prompt.request = random_stream_id();
    outlives_reader_ = request_.survive_disconnect || prompt.idempotency_key.has_value();
  }
}

template <class Step> void CompletionAnswer::guarded(Step step) {
  try {
    step();
  } catch (...) {
    stop();
    cancel_streams();
    throw;
  }
}

void CompletionAnswer::start() {
  guarded([this] { begin(); });
}

void CompletionAnswer::begin() {
  call_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      if (!self->outlives_reader_)
        self->cancel_streams();
      self->stop();
    }
  });
  if (!request_.stream) {
    memory_ = std::make_shared<AnswerMemory::Part>(bounds_.memory);
    if (!keep(0)) // before anything runs for it
      return;
  }
  if (const auto error = open_streams())
    return fail(*error);
  make_writer();
  for (Part& part : parts_)
    part.reader->start([weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->advance();
    });
  if (request_.stream)
    arm_ping();
}

std::optional<ApiError> CompletionAnswer::open_streams() {
  const Principal& who = call_->request().principal;
  for (size_t i = 0; i < parts_.size(); ++i) {
    auto opened = streams_.open(std::move(request_.prompts[i]), who, call_->origin());
    if (const auto* failure = std::get_if<Failure>(&opened))
      return api_error(*failure);
    const auto& stream = std::get<Streams::Opened>(opened);
    parts_[i].joined = stream.joined;
    Cursor cursor;
    if (!stream.joined) // all of it is told for the first time
      cursor.live_from.assign(static_cast<size_t>(request_.n), 0);
    parts_[i].reader = std::make_shared<StreamReader>(streams_, stream.stream, std::move(cursor), call_);
  }
  return std::nullopt;
}

/// Under the name of the stream that there is: an earlier request's, if this one joined it.
void CompletionAnswer::make_writer() {
  head_.id = (request_.style == Style::chat ? "chatcmpl-" : "cmpl-") + to_hex(parts_[0].reader->stream());
  writer_ = (request_.stream ? make_chunk_writer : make_whole_writer)(std::move(head_), parts_.size());
}

void CompletionAnswer::stop() {
  if (std::exchange(over_, true))
    return;
  stop_readers();
  memory_ = nullptr;
  on_over_();
}

void CompletionAnswer::advance() {
  guarded([this] { go_on(); });
}

void CompletionAnswer::go_on() {
  if (over_)
    return;
  if (!output_.pump() && request_.stream) {
    for (const Part& part : parts_)
      if (!closing_ && part.reader->behind(bounds_.max_lag_bytes))
        return lagging(*part.reader);
    return go_on_when_drained();
  }
  if (closing_) {
    call_->end();
    return stop();
  }
  bool ended = true;
  for (size_t prompt = 0; prompt < parts_.size(); ++prompt) {
    if (!parts_[prompt].reader->ended() && !read(prompt))
      return;
    ended = ended && parts_[prompt].reader->ended();
  }
  if (ended)
    finish();
}

bool CompletionAnswer::read(size_t prompt) {
  StreamReader& reader = *parts_[prompt].reader;
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    const StreamReader::Batch batch = reader.read(kReadBytes);
    if (!batch.known) {
      fail(api_error_of(to_string(Error::unknown_request)));
      return false;
    }
    if (batch.lag) {
      lagging(reader);
      return false;
    }
    for (const Event& event : batch.events)
      if (!take(prompt, event))
        return false;
    flush();
    if (over_ || closing_)
      return false;
    if (request_.stream && !output_.pump()) {
      go_on_when_drained();
      return false;
    }
    if (!batch.more)
      return true;
  }
  reader.wake(reader.stream()); // now others have their turn
  return false;
}

bool CompletionAnswer::take(size_t prompt, const Event& event) {
  Usage& usage = parts_[prompt].usage;
  const auto in_range = [&](int32_t choice) { return choice >= 0 && choice < request_.n; };
  const auto refuse = [&](const ApiError& error) {
    fail(error);
    return false;
  };
  return std::visit(Overloaded{
                        [&](const Started& started) {
                          usage.prompt_tokens = started.prompt_tokens;
                          if (started.epoch == 0 && started.choice == 0) // others may find what this one has read
                            usage.cached_tokens = started.cached_tokens;
                          writer_->started(prompt, started);
                          if (request_.stream)
                            write_head();
                          return true;
                        },
                        [&](const Progress&) { return true; },
                        [&](const PromptLogprobs& logprobs) {
                          writer_->scored(prompt, logprobs);
                          return true;
                        },
                        [&](const Token& token) {
                          if (in_range(token.choice))
                            writer_->token(prompt, token);
                          return true;
                        },
                        [&](const Finished& finished) {
                          if (is_error(finished))
                            return refuse(api_error_of(finished.error));
                          cancelled_ = cancelled_ || finished.reason == to_string(FinishReason::cancelled);
                          expired_ = expired_ || finished.reason == to_string(FinishReason::deadline);
                          if (in_range(finished.choice))
                            writer_->finished(prompt, finished);
                          return true;
                        },
                        [&](const Done& done) {
                          usage.prompt_tokens = done.prompt_tokens;
                          usage.completion_tokens = done.generated_tokens;
                          return true;
                        },
                        [&](const Rejected& rejected) { return refuse(api_error(rejected)); },
                    },
                    event);
}

void CompletionAnswer::flush() {
  const std::string chunks = request_.stream ? writer_->take() : std::string{};
  if (!chunks.empty()) {
    write_head();
    silent_ = false;
    output_.write(chunks);
  }
  keep(writer_->held_bytes() + output_.held());
}

bool CompletionAnswer::keep(size_t bytes) {
  if (bytes > bounds_.max_answer_bytes) {
    fail({400, "answer_too_large", {}, "the answer is larger than this server keeps in memory", 0});
    return false;
  }
  if (memory_ && !memory_->resize(kLeastMemory + bytes)) {
    fail(api_error(Failure{Error::busy, {}, "too much is kept for answers that are not streamed; use stream, or try again later"}));
    return false;
  }
  return true;
}

void CompletionAnswer::finish() {
  Usage total;
  for (const Part& part : parts_) {
    total.prompt_tokens += part.usage.prompt_tokens;
    total.completion_tokens += part.usage.completion_tokens;
    total.cached_tokens += part.usage.cached_tokens;
  }
  if (request_.stream && cancelled_)
    return fail({503, "cancelled", {}, "the request was cancelled", 0}); // a reason to finish, but no success
  if (!request_.stream && expired_ && total.completion_tokens == 0)
    return fail({504, "deadline", "deadline_ms", "the request's deadline passed before its first token", 0});
  writer_->done(total);
  if (request_.stream)
    return close(writer_->take());
  Response response = head();
  response.body = writer_->take();
  if (!keep(response.body.size()))
    return;
  response.kept = std::move(memory_);
  call_->respond(std::move(response));
  stop();
}

/// Ends the answer: with a status of its own while that can be, else as the stream's last event. What still runs for it is
/// of use to nobody.
void CompletionAnswer::fail(const ApiError& error) {
  if (over_ || closing_)
    return;
  cancel_streams();
  if (call_->begun()) {
    std::string chunks = writer_->take();
    append_event(chunks, {}, {}, to_json(error));
    return close(std::move(chunks));
  }
  call_->respond(error);
  stop();
}

/// The stream goes on: its reader is told where to come back.
void CompletionAnswer::lagging(const StreamReader& reader) {
  if (!request_.stream)
    return fail({500, "lagging", {}, "the answer left the log before it was collected; use stream", 0});
  std::string chunks = writer_->take();
  append_lagging(chunks, reader);
  close(std::move(chunks));
}

/// Writes the last chunks of a streamed answer, as the peer takes them.
void CompletionAnswer::close(std::string last) {
  write_head();
  closing_ = true;
  stop_readers();
  output_.write(last);
  if (output_.held() > 0)
    return go_on_when_drained();
  call_->end();
  stop();
}

void CompletionAnswer::go_on_when_drained() {
  call_->on_drained([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->call_->on_drained(nullptr); // once
      self->advance();
    }
  });
}

void CompletionAnswer::write_head() {
  if (call_->begun())
    return;
  Response begin = head();
  begin.content_type = "text/event-stream";
  begin.headers.emplace_back("Cache-Control", "no-cache");
  call_->begin(std::move(begin));
}

/// The headers of a success.
Response CompletionAnswer::head() const {
  Response response;
  std::string ids;
  for (const Part& part : parts_)
    ids += (ids.empty() ? "" : ", ") + to_hex(part.reader->stream());
  response.headers.emplace_back("X-Millrace-Stream", ids);
  if (parts_[0].joined)
    response.headers.emplace_back("Idempotent-Replayed", "true");
  return response;
}

void CompletionAnswer::arm_ping() {
  call_->after(bounds_.ping, [weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->ping();
  });
}

void CompletionAnswer::ping() {
  if (over_ || closing_)
    return;
  write_head();
  if (std::exchange(silent_, true) && call_->queued() == 0)
    output_.write(std::string(kPing));
  arm_ping();
}

void CompletionAnswer::cancel_streams() {
  for (const Part& part : parts_)
    if (part.reader && !part.joined && !part.reader->ended())
      streams_.cancel(part.reader->stream(), call_->request().principal, call_->origin());
}

void CompletionAnswer::stop_readers() {
  for (const Part& part : parts_)
    if (part.reader)
      part.reader->stop();
}

} // namespace millrace::http
