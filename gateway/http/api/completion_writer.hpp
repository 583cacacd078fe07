#pragma once

// Events of streams as answers of the completions API: as chunks while they come, or as one object at the end. Knows no
// sockets and no streams, so that all of it can be tested with events alone.

#include "gateway/http/api/completion_request.hpp"
#include "gateway/http/api/logprobs.hpp"
#include "messages/stream.hpp"

#include <memory>
#include <string>
#include <vector>

namespace millrace::http {

/// What all parts of an answer share.
struct AnswerHead {
  Style style = Style::completion;
  std::string id; // "cmpl-…" or "chatcmpl-…"
  int64_t created = 0;
  std::string model;
  int32_t n = 1;
  bool logprobs = false;
  bool include_usage = false;
  std::vector<Echo> echo;            // of each prompt; empty: none
  bool scores_prompt = false;        // with echo: PromptLogprobs will come
  std::shared_ptr<const Tokenizer> tokenizer; // may be null
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

/// Takes the events of `prompts` streams, those of each in their order.
class CompletionWriter {
public:
  virtual ~CompletionWriter() = default;

  virtual void started(size_t prompt, const Started& event) = 0;
  virtual void scored(size_t prompt, const PromptLogprobs& event) = 0;
  virtual void token(size_t prompt, const Token& event) = 0;
  virtual void finished(size_t prompt, const Finished& event) = 0;
  /// After the last event.
  virtual void done(const Usage& usage) = 0;

  /// What can be sent now: server-sent events, or the whole answer once it is done.
  virtual std::string take() = 0;
  /// Bytes that are kept, taken or not yet.
  virtual size_t held_bytes() const = 0;
};

/// Server-sent events: one chunk a token. Ends with "[DONE]". With one stream each has an id to rejoin with.
std::unique_ptr<CompletionWriter> make_chunk_writer(AnswerHead head, size_t prompts);
/// One object.
std::unique_ptr<CompletionWriter> make_whole_writer(AnswerHead head, size_t prompts);

/// {"prompt_tokens": …, …}
void append_usage(std::string& out, const Usage& usage);

/// FinishReason's names are OpenAI's, and "cancelled" and "deadline" beyond those; an error is not a reason but an error.
bool is_error(const Finished& event);

} // namespace millrace::http
