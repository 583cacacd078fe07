#include "gateway/http/api/completion_writer.hpp"
#include "gateway/json.hpp"

#include <utility>

namespace millrace::http {
namespace {

class WholeWriter final : public CompletionWriter {
public:
  WholeWriter(AnswerHead head, size_t prompts)
      : head_(std::move(head)), prompts_(prompts), choices_(prompts * static_cast<size_t>(head_.n)) {
    for (size_t i = 0; i < head_.echo.size(); ++i) {
      prompts_[i].offsets.emplace(head_.echo[i].text, head_.tokenizer.get(), head_.echo[i].has_space_prefix);
      prompts_[i].characters = count_characters(head_.echo[i].text);
    }
  }

  void started(size_t, const Started&) override {}

  void scored(size_t prompt, const PromptLogprobs& event) override {
    Prompt& of = prompts_[prompt];
    if (!of.offsets || event.position != of.scored)
      return;
    for (const PromptToken& token : event.tokens)
      of.logprobs.add(token.id, token.bytes, token.logprob, token.top, of.offsets->next(token.id, token.bytes),
                      head_.tokenizer.get());
    of.scored += static_cast<int32_t>(event.tokens.size());
  }

  void token(size_t prompt, const Token& event) override {
    Choice& choice = choice_of(prompt, event.choice);
    if (head_.logprobs && head_.style == Style::chat) {
      if (!choice.chat_logprobs.empty())
        choice.chat_logprobs += ',';
      append_chat_logprob(choice.chat_logprobs, event, head_.tokenizer.get());
    } else if (head_.logprobs) {
      choice.logprobs.add(event.id, event.bytes, event.logprob, event.top,
                          prompts_[prompt].characters + choice.characters, head_.tokenizer.get());
    }
    choice.text += event.text;
    choice.characters += count_characters(event.text);
  }

  void finished(size_t prompt, const Finished& event) override {
    Choice& choice = choice_of(prompt, event.choice);
    choice.text += event.text;
    choice.reason = event.reason;
  }

  void done(const Usage& usage) override {
    out_ = "{\"id\":";
    append_json(out_, std::string_view{head_.id});
    out_ += head_.style == Style::chat ? ",\"object\":\"chat.completion\"" : ",\"object\":\"text_completion\"";
    out_ += ",\"created\":";
    append_json(out_, head_.created);
    out_ += ",\"model\":";
    append_json(out_, std::string_view{head_.model});
    out_ += ",\"choices\":[";
    for (size_t i = 0; i < choices_.size(); ++i)
      append_choice(i);
    out_ += "],\"usage\":";
    append_usage(out_, usage);
    out_ += '}';
  }

  std::string take() override { return std::exchange(out_, {}); }

  size_t held_bytes() const override {
    const auto n = static_cast<size_t>(head_.n); // choices will repeat what is kept once
    size_t bytes = out_.size();
    for (const Echo& echo : head_.echo)
      bytes += echo.text.size() * n;
    for (const Prompt& prompt : prompts_)
      bytes += prompt.logprobs.bytes() * n;
    for (const Choice& choice : choices_)
      bytes += choice.text.size() + choice.logprobs.bytes() + choice.chat_logprobs.size();
    return bytes;
  }

private:
  struct Prompt {
    CompletionLogprobs logprobs;
    std::optional<PromptOffsets> offsets;
    int64_t characters = 0; // that are echoed
    int32_t scored = 0;
  };
  struct Choice {
    std::string text, reason;
    int64_t characters = 0;
    CompletionLogprobs logprobs;
    std::string chat_logprobs;
  };

  Choice& choice_of(size_t prompt, int32_t choice) {
    return choices_[prompt * static_cast<size_t>(head_.n) + static_cast<size_t>(choice)];
  }

  void append_choice(size_t index) {
    const Choice& choice = choices_[index];
    const size_t prompt = index / static_cast<size_t>(head_.n);
    out_ += index == 0 ? "{\"index\":" : ",{\"index\":";
    append_json(out_, uint64_t{index});
    if (head_.style == Style::chat) {
      out_ += ",\"message\":{\"role\":\"assistant\",\"content\":";
      append_json(out_, std::string_view{choice.text});
      out_ += ",\"refusal\":null},\"logprobs\":";
      out_ += head_.logprobs ? "{\"content\":[" + choice.chat_logprobs + "],\"refusal\":null}" : "null";
    } else {
      out_ += ",\"text\":";
      append_json(out_, std::string_view{head_.echo.empty() ? choice.text : head_.echo[prompt].text + choice.text});
      out_ += ",\"logprobs\":";
      append_logprobs(prompt, choice);
    }
    out_ += ",\"finish_reason\":";
    append_json(out_, std::string_view{choice.reason});
    out_ += '}';
  }

  void append_logprobs(size_t prompt, const Choice& choice) {
    if (!head_.logprobs) {
      out_ += "null";
      return;
    }
    CompletionLogprobs all = prompts_[prompt].logprobs;
    all.append(choice.logprobs);
    all.append_json(out_);
  }

  AnswerHead head_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;
  std::string out_;
};

} // namespace

std::unique_ptr<CompletionWriter> make_whole_writer(AnswerHead head, size_t prompts) {
  return std::make_unique<WholeWriter>(std::move(head), prompts);
}

} // namespace millrace::http
