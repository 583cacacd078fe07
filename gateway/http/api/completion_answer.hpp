#pragma once

#include "gateway/http/api/answer.hpp"
#include "gateway/http/api/call.hpp"
#include "gateway/http/api/completion_request.hpp"
#include "gateway/http/api/completion_writer.hpp"
#include "gateway/http/api/paced_output.hpp"
#include "gateway/http/api/stream_reader.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace millrace::http {

/// Runs a request of the completions API: a stream for each prompt, read as fast as the peer takes its chunks, or
/// collected. When the peer leaves, the streams are cancelled, unless it said that they should go on.
///
///   start -> streaming (no head yet -> head sent) -> closing -> over
///        \-> collecting -> over
///
/// The head of a streamed answer waits for the first event, so that a refusal still gets its own status, but for no longer
/// than a ping's time.
class CompletionAnswer final : public Answer, public std::enable_shared_from_this<CompletionAnswer> {
public:
  CompletionAnswer(Streams& streams, std::shared_ptr<Call> call, CompletionRequest request, AnswerHead head,
                   const AnswerBounds& bounds, std::function<void()> on_over);

  void start() override;
  void stop() override;

private:
  struct Part {
    std::shared_ptr<StreamReader> reader;
    Usage usage;
    bool joined = false; // opened by an earlier request
  };

  /// Runs a step. If it throws, for want of memory most likely, nothing of the answer stays behind; the exchange tells
  /// the client.
  template <class Step> void guarded(Step step);
  void begin();
  std::optional<ApiError> open_streams();
  void make_writer();
  void advance();
  void go_on();
  /// False if the answer ends, or goes on in a later call.
  bool read(size_t prompt);
  /// False if the answer ends.
  bool take(size_t prompt, const Event& event);
  void flush();
  /// False if the answer ends.
  bool keep(size_t bytes);
  void fail(const ApiError& error);
  void lagging(const StreamReader& reader);
  void finish();
  void close(std::string last);
  void go_on_when_drained();
  void write_head();
  Response head() const;
  void arm_ping();
  void ping();
  void cancel_streams();
  void stop_readers();

  Streams& streams_;
  std::shared_ptr<Call> call_;
  CompletionRequest request_;
  AnswerHead head_; // until there is a writer
  AnswerBounds bounds_;
  PacedOutput output_;
  std::unique_ptr<CompletionWriter> writer_;
  std::shared_ptr<AnswerMemory::Part> memory_; // null if it is streamed, or over
  std::vector<Part> parts_; // one for each prompt
  std::function<void()> on_over_;
  bool outlives_reader_ = false;
  bool cancelled_ = false; // a choice was, by somebody else
  bool expired_ = false;   // a choice reached the deadline
  bool silent_ = true;     // since the last ping
  bool closing_ = false;   // the last bytes wait for the peer
  bool over_ = false;
};

} // namespace millrace::http
