#include "gateway/http/api/completion_writer.hpp"
#include "gateway/http/api/sse.hpp"
#include "gateway/json.hpp"

#include <utility>

namespace millrace::http {
namespace {

class ChunkWriter final : public CompletionWriter {
public:
  ChunkWriter(AnswerHead head, size_t prompts) : head_(std::move(head)), prompts_(prompts) {
    opening_ = "{\"id\":";
    append_json(opening_, std::string_view{head_.id});
    opening_ += head_.style == Style::chat ? ",\"object\":\"chat.completion.chunk\",\"created\":"
                                           : ",\"object\":\"text_completion\",\"created\":";
    append_json(opening_, head_.created);
    opening_ += ",\"model\":";
    append_json(opening_, std::string_view{head_.model});
    opening_ += ",\"choices\":[";
    for (size_t i = 0; i < prompts; ++i) {
      prompts_[i].choices.resize(static_cast<size_t>(head_.n));
      prompts_[i].holds = head_.scores_prompt;
      if (head_.scores_prompt)
        prompts_[i].offsets.emplace(head_.echo[i].text, head_.tokenizer.get(), head_.echo[i].has_space_prefix);
    }
  }

  void started(size_t prompt, const Started& event) override {
    prompts_[prompt].prompt_tokens = event.prompt_tokens;
  }

  /// All choices of a prompt echo it, though its log-probs come but once.
  void scored(size_t prompt, const PromptLogprobs& event) override {
    Prompt& of = prompts_[prompt];
    if (!of.holds || event.position != of.scored)
      return;
    CompletionLogprobs logprobs;
    for (const PromptToken& token : event.tokens)
      logprobs.add(token.id, token.bytes, token.logprob, token.top, of.offsets->next(token.id, token.bytes),
                   head_.tokenizer.get());
    std::string json;
    logprobs.append_json(json);
    for (int32_t choice = 0; choice < head_.n; ++choice)
      write(out_, prompt, choice, event.position == 0 ? head_.echo[prompt].text : std::string{}, json, {});
    of.scored += static_cast<int32_t>(event.tokens.size());
    if (of.scored >= of.prompt_tokens)
      release(of);
  }

  void token(size_t prompt, const Token& event) override {
    std::string& out = open_choice(prompt, event.choice);
    if (prompts_.size() == 1)
      id_.sent(event.choice, event.seq);
    Choice& choice = prompts_[prompt].choices[static_cast<size_t>(event.choice)];
    std::string logprobs;
    if (head_.logprobs)
      append_logprobs(logprobs, choice, event);
    choice.characters += count_characters(event.text);
    if (!event.text.empty() || head_.logprobs)
      write(out, prompt, event.choice, event.text, logprobs, {});
  }

  void finished(size_t prompt, const Finished& event) override {
    if (event.choice == 0)
      release(prompts_[prompt]); // whatever was not scored will not be any more
    std::string& out = open_choice(prompt, event.choice);
    if (prompts_.size() == 1)
      id_.sent(event.choice, event.seq);
    if (head_.style == Style::chat && !event.text.empty())
      write(out, prompt, event.choice, event.text, {}, {});
    write(out, prompt, event.choice, head_.style == Style::chat ? std::string{} : event.text, {}, event.reason);
  }

  void done(const Usage& usage) override {
    if (head_.include_usage) {
      std::string data = opening_ + "],\"usage\":";
      append_usage(data, usage);
      append_event(out_, {}, id_.text(), data + '}');
    }
    append_event(out_, {}, {}, "[DONE]");
  }

  std::string take() override { return std::exchange(out_, {}); }
  size_t held_bytes() const override {
    size_t bytes = out_.size();
    for (const Prompt& prompt : prompts_)
      bytes += prompt.held.size();
    return bytes;
  }

private:
  struct Choice {
    bool open = false;
    int64_t characters = 0; // of its text so far
  };
  struct Prompt {
    std::vector<Choice> choices;
    std::optional<PromptOffsets> offsets;
    int32_t prompt_tokens = 0, scored = 0;
    bool holds = false; // tokens wait until all of the echoed prompt was sent
    std::string held;
  };

  void release(Prompt& prompt) {
    prompt.holds = false;
    out_ += std::exchange(prompt.held, {});
  }

  /// Where chunks of the choice go now. The first one tells the role, or echoes the prompt.
  std::string& open_choice(size_t prompt, int32_t number) {
    Prompt& of = prompts_[prompt];
    std::string& out = of.holds ? of.held : out_;
    Choice& choice = of.choices[static_cast<size_t>(number)];
    if (std::exchange(choice.open, true))
      return out;
    if (head_.style == Style::chat)
      write_delta(out, prompt, number, "{\"role\":\"assistant\",\"content\":\"\"}", {}, {});
    else if (!head_.echo.empty()) {
      choice.characters = count_characters(head_.echo[prompt].text);
      if (!head_.scores_prompt && !head_.echo[prompt].text.empty())
        write(out, prompt, number, head_.echo[prompt].text, {}, {});
    }
    return out;
  }

  void append_logprobs(std::string& out, const Choice& choice, const Token& event) const {
    if (head_.style == Style::chat) {
      out += "{\"content\":[";
      append_chat_logprob(out, event, head_.tokenizer.get());
      out += "],\"refusal\":null}";
      return;
    }
    CompletionLogprobs logprobs;
    logprobs.add(event.id, event.bytes, event.logprob, event.top, choice.characters, head_.tokenizer.get());
    logprobs.append_json(out);
  }

  /// A chat's last chunk has an empty delta.
  void write(std::string& out, size_t prompt, int32_t choice, const std::string& text, const std::string& logprobs,
             std::string_view reason) {
    std::string delta;
    if (head_.style == Style::completion) {
      append_json(delta, std::string_view{text});
    } else if (reason.empty()) {
      delta = "{\"content\":";
      append_json(delta, std::string_view{text});
      delta += '}';
    } else {
      delta = "{}";
    }
    write_delta(out, prompt, choice, delta, logprobs, reason);
  }

  void write_delta(std::string& out, size_t prompt, int32_t choice, std::string_view delta, const std::string& logprobs,
                   std::string_view reason) {
    std::string data = opening_ + "{\"index\":";
    append_json(data, int64_t{head_.n} * static_cast<int64_t>(prompt) + choice);
    data += head_.style == Style::chat ? ",\"delta\":" : ",\"text\":";
    data += delta;
    data += ",\"logprobs\":" + (logprobs.empty() ? "null" : logprobs) + ",\"finish_reason\":";
    if (reason.empty())
      data += "null";
    else
      append_json(data, reason);
    data += head_.include_usage ? "}],\"usage\":null}" : "}]}";
    append_event(out, {}, id_.text(), data);
  }

  AnswerHead head_;
  std::vector<Prompt> prompts_;
  std::string opening_; // of each chunk, to the first choice
  std::string out_;
  EventId id_;
};

} // namespace

std::unique_ptr<CompletionWriter> make_chunk_writer(AnswerHead head, size_t prompts) {
  return std::make_unique<ChunkWriter>(std::move(head), prompts);
}

} // namespace millrace::http
