#include "actors/tokenizer.hpp"

#include "actors/exceptions.hpp"

#include <algorithm>

namespace millrace {
namespace {

Rejected rejected(const StreamId& request, Error error, std::string field, std::string message) {
  return {.request = request,
          .error = std::string(to_string(error)),
          .field = std::move(field),
          .message = std::move(message)};
}

std::vector<TokenId> prompt_ids(const Generate& request, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  if (request.prompt_ids)
    ids = *request.prompt_ids;
  else
    ids = tokenizer.encode(request.prompt.value_or(""),
                           {.add_bos = request.add_bos, .parse_special = request.parse_special});
  if (ids.empty() && request.add_bos && tokenizer.bos() >= 0)
    ids.push_back(tokenizer.bos());
  return ids;
}

Rejected too_long(const Generate& request, const char* field, const std::string& count, int32_t context_length) {
  return rejected(request.request, Error::prompt_too_long, field,
                  "has " + count + " tokens; with one generated token it must fit the context of " +
                      std::to_string(context_length));
}

} // namespace

size_t longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max({longest, tokenizer.bytes(id).size(), tokenizer.piece(id).size()});
  return longest;
}

std::variant<Prompt, Rejected> encode_prompt(Generate request, const Tokenizer& tokenizer, size_t longest_token,
                                             int32_t context_length) {
  const char* field = request.prompt_ids ? "prompt_ids" : "prompt";
  // Others wait while a prompt is encoded, so one that can't fit is not.
  if (const size_t least = request.prompt ? request.prompt->size() / longest_token : 0; least >= size_t(context_length))
    return too_long(request, field, "at least " + std::to_string(least), context_length);
  std::vector<TokenId> ids = prompt_ids(request, tokenizer);
  if (ids.empty())
    return rejected(request.request, Error::invalid_field, field,
                    "must not be empty: nothing else tells this model where to begin");
  if (ids.size() >= size_t(context_length))
    return too_long(request, field, std::to_string(ids.size()), context_length);
  request.prompt.reset();
  request.prompt_ids.reset();
  return Prompt{.generate = std::move(request), .token_ids = std::move(ids)};
}

// The state is the same after any request, so one that can't be encoded is no reason to die.
void TokenizerState::encode(Generate& request) {
  backlog->leave(request);
  const StreamId id = request.request;
  try {
    std::visit([this](auto&& message) { self->send(dispatch, std::move(message)); },
               encode_prompt(std::move(request), *tokenizer, longest_token, context_length));
  } catch (const std::exception& exception) {
    self->send(dispatch, rejected(id, Error::internal, "prompt", std::string("encoding failed: ") + exception.what()));
  }
}

TokenizerActor::behavior_type tokenizer_actor(TokenizerActor::stateful_pointer<TokenizerState> self,
                                              std::shared_ptr<const Tokenizer> tokenizer, int32_t context_length,
                                              std::shared_ptr<Backlog> backlog, DispatchActor dispatch) {
  die_with_text(self, Error::internal);
  auto& state = self->state;
  state.longest_token = longest_token(*tokenizer);
  state.tokenizer = std::move(tokenizer);
  state.context_length = context_length;
  state.backlog = std::move(backlog);
  state.dispatch = std::move(dispatch);
  return {
      [=](Generate& request) { self->state.encode(request); },
      [=](const Cancel& cancel) { self->send(self->state.dispatch, cancel); },
  };
}

} // namespace millrace
