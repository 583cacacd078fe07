#pragma once

#include "gateway/http/api/answer.hpp"
#include "gateway/http/api/call.hpp"
#include "gateway/http/api/paced_output.hpp"
#include "gateway/http/api/sse.hpp"
#include "gateway/http/api/stream_reader.hpp"

#include <functional>
#include <memory>

namespace millrace::http {

/// A stream's own events as server-sent events, from any seq on, to the end. Its reader may leave and come back; the
/// stream does not mind.
class StreamAnswer final : public Answer, public std::enable_shared_from_this<StreamAnswer> {
public:
  StreamAnswer(Streams& streams, std::shared_ptr<Call> call, const StreamId& stream, const Cursor& from,
               const AnswerBounds& bounds, std::function<void()> on_over);

  void start() override;
  void stop() override;

private:
  void advance();
  void write(std::string& out, const Event& event);
  void close(const std::string& last);
  void go_on_when_drained();
  void arm_ping();
  void ping();

  std::shared_ptr<Call> call_;
  std::shared_ptr<StreamReader> reader_;
  AnswerBounds bounds_;
  PacedOutput output_;
  std::function<void()> on_over_;
  EventId id_;
  bool silent_ = true;   // since the last ping
  bool closing_ = false; // the last bytes wait for the peer
  bool over_ = false;
};

} // namespace millrace::http
