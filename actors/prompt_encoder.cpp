#include "actors/prompt_encoder.hpp"

#include "actors/choice_sampler.hpp"
#include "actors/scheduler/make_sequence.hpp"

#include <algorithm>

namespace millrace {
namespace {

Rejected rejected(const Generate& request, Error error, const char* field, std::string message) {
  return {.request = request.request,
          .error = std::string(to_string(error)),
          .field = field,
          .message = std::move(message)};
}

Rejected too_long(const Generate& request, const char* field, const std::string& count,
                  int32_t context_length) {
  return rejected(request, Error::prompt_too_long, field,
                  "has " + count + " tokens; with one generated token it must fit the context of " +
                      std::to_string(context_length));
}

const char* prompt_field(const Generate& request) {
  return request.messages ? "messages" : request.prompt_ids ? "prompt_ids" : "prompt";
}

ChatInput chat_input(const Generate& request) {
  ChatInput input;
  input.tools = request.tools;
  input.arguments = request.template_arguments;
  input.add_generation_prompt = request.add_generation_prompt;
  input.now = request.time;
  for (const ChatMessage& message : *request.messages)
    input.turns.push_back({.role = message.role,
                           .content = message.content,
                           .name = message.name,
                           .tool_call_id = message.tool_call_id,
                           .tool_calls = message.tool_calls});
  return input;
}

} // namespace

PromptEncoder::PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer, ChatSupport chat,
                             int32_t context_length)
    : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)), context_length_(context_length) {
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id)
    longest_token_ = std::max({longest_token_, tokenizer_->bytes(id).size(), tokenizer_->piece(id).size()});
}

std::variant<Prompt, Rejected> PromptEncoder::encode(Generate request) const {
  auto encoded = ids(request);
  if (auto* refusal = std::get_if<Rejected>(&encoded))
    return std::move(*refusal);

  auto& ids = std::get<std::vector<TokenId>>(encoded);
  const char* field = prompt_field(request);
  if (ids.empty())
    return rejected(request, Error::invalid_field, field,
                    "must not be empty: nothing else tells this model where to begin");
  if (ids.size() >= size_t(context_length_))
    return too_long(request, field, std::to_string(ids.size()), context_length_);
  request.prompt.reset();
  request.prompt_ids.reset();
  request.messages.reset();
  request.tools.reset();
  request.template_arguments.reset();
  return Prompt{.generate = std::move(request), .token_ids = std::move(ids)};
}

std::variant<std::vector<TokenId>, Rejected> PromptEncoder::ids(const Generate& request) const {
  if (request.messages)
    return ids_of_messages(request);
  std::vector<TokenId> ids;
  if (request.prompt_ids) {
    ids = *request.prompt_ids;
  } else {
    const std::string& text = *request.prompt;
    if (auto refusal = check_size(request, "prompt", text.size()))
      return *std::move(refusal);
    ids = tokenizer_->encode(text, {.add_bos = request.add_bos, .parse_special = request.parse_special});
  }
  if (ids.empty() && request.add_bos && tokenizer_->bos() >= 0)
    ids.push_back(tokenizer_->bos());
  return ids;
}

std::variant<std::vector<TokenId>, Rejected> PromptEncoder::ids_of_messages(const Generate& request) const {
  if (!chat_.chat_template)
    return rejected(request, Error::unsupported, "messages", chat_.refusal);
  RenderedPrompt rendered;
  try {
    rendered = chat_.chat_template->render(chat_input(request));
  } catch (const TemplateError& error) {
    return rejected(request, Error::invalid_field, "messages", error.what());
  }
  if (auto refusal = check_size(request, "messages", rendered.text.size()))
    return *std::move(refusal);
  return tokenizer_->encode(rendered);
}

// Others wait while a prompt is encoded, so one that can't fit is not.
std::optional<Rejected> PromptEncoder::check_size(const Generate& request, const char* field,
                                                  size_t bytes) const {
  const size_t least = bytes / longest_token_;
  if (least < size_t(context_length_))
    return std::nullopt;
  return too_long(request, field, "at least " + std::to_string(least), context_length_);
}

LocalResumption PromptEncoder::resume(ResumedRequest request) const {
  LocalResumption resumption{
      .prompt = {.generate = request.generate, .token_ids = {}}, .choices = {}, .scored = request.scored};
  for (ResumedRequest::Choice& choice : request.choices)
    resumption.choices.push_back({.emitted_ids = std::move(choice.emitted_ids),
                                  .epoch = choice.next_epoch,
                                  .finished = choice.finished,
                                  .end = {}});
  try {
    auto encoded = encode(std::move(request.generate));
    if (auto* prompt = std::get_if<Prompt>(&encoded)) {
      resumption.prompt = std::move(*prompt);
      find_ends(resumption);
    } else {
      resumption.error = std::get<Rejected>(encoded).error;
    }
  } catch (const std::exception&) {
    resumption.error = to_string(Error::internal);
  }
  return resumption;
}

void PromptEncoder::find_ends(LocalResumption& resumption) const {
  const Prompt& prompt = resumption.prompt;
  for (int32_t index = 0; LocalResumption::Choice& choice : resumption.choices) {
    const SequenceId id{prompt.generate.request, index++, choice.epoch};
    if (!choice.finished)
      choice.end = ChoiceSampler(make_sequence(prompt, id, choice.emitted_ids, context_length_), *tokenizer_)
                       .reached_end();
  }
}

} // namespace millrace
