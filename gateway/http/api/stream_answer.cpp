#include "gateway/http/api/stream_answer.hpp"

#include "gateway/json.hpp"

#include <utility>

namespace millrace::http {

StreamAnswer::StreamAnswer(Streams& streams, std::shared_ptr<Call> call, const StreamId& stream, const Cursor& from,
                           const AnswerBounds& bounds, std::function<void()> on_over)
    : call_(std::move(call)), reader_(std::make_shared<StreamReader>(streams, stream, from, call_)), bounds_(bounds),
      output_(call_, bounds.max_queued_bytes), on_over_(std::move(on_over)), id_(from) {}

void StreamAnswer::start() {
  call_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->stop();
  });
  Response head;
  head.content_type = "text/event-stream";
  head.headers.emplace_back("Cache-Control", "no-cache");
  call_->begin(std::move(head));
  reader_->start([weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->advance();
  });
  arm_ping();
}

void StreamAnswer::stop() {
  if (std::exchange(over_, true))
    return;
  reader_->stop();
  on_over_();
}

void StreamAnswer::advance() {
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    if (over_)
      return;
    std::string out;
    if (!output_.pump()) {
      if (closing_ || !reader_->behind(bounds_.max_lag_bytes))
        return go_on_when_drained();
      append_lagging(out, *reader_);
      return close(out);
    }
    if (closing_) {
      call_->end();
      return stop();
    }
    const StreamReader::Batch batch = reader_->read(kReadBytes);
    if (!batch.known) {
      append_event(out, "error", {}, to_json(api_error_of(to_string(Error::unknown_request))));
      return close(out);
    }
    if (batch.lag) {
      append_lagging(out, *reader_);
      return close(out);
    }
    for (const Event& event : batch.events)
      write(out, event);
    if (reader_->ended())
      return close(out);
    silent_ = silent_ && out.empty();
    output_.write(out);
    if (!batch.more)
      return;
  }
  reader_->wake(reader_->stream()); // now others have their turn
}

void StreamAnswer::write(std::string& out, const Event& event) {
  std::visit(
      [&]<class E>(const E& held) {
        if constexpr (requires { held.seq; })
          id_.sent(held.choice, held.seq);
        if constexpr (std::is_same_v<E, Done> || std::is_same_v<E, Rejected>)
          id_.end();
        append_event(out, E::kType, id_.text(), to_json(held));
      },
      event);
}

void StreamAnswer::close(const std::string& last) {
  closing_ = true;
  reader_->stop();
  output_.write(last);
  if (output_.held() > 0)
    return go_on_when_drained();
  call_->end();
  stop();
}

void StreamAnswer::go_on_when_drained() {
  call_->on_drained([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->call_->on_drained(nullptr); // once
      self->advance();
    }
  });
}

void StreamAnswer::arm_ping() {
  call_->after(bounds_.ping, [weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->ping();
  });
}

void StreamAnswer::ping() {
  if (over_ || closing_)
    return;
  if (std::exchange(silent_, true) && call_->queued() == 0)
    output_.write(std::string(kPing));
  arm_ping();
}

} // namespace millrace::http
