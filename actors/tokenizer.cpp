#include "actors/tokenizer.hpp"

#include "actors/exceptions.hpp"

namespace millrace {

// The state is the same after any request, so one that can't be encoded is no reason to die.
void TokenizerState::encode(Generate& request) {
  backlog->leave(request);
  const StreamId id = request.request;
  try {
    auto encoded = encoder->encode(std::move(request));
    if (const auto* prompt = std::get_if<Prompt>(&encoded))
      tell_encoded(*prompt);
    std::visit([this](auto&& message) { self->send(dispatch, std::move(message)); }, std::move(encoded));
  } catch (const std::exception& exception) {
    self->send(dispatch, Rejected{.request = id,
                                  .error = std::string(to_string(Error::internal)),
                                  .field = "prompt",
                                  .message = std::string("encoding failed: ") + exception.what()});
  }
}

void TokenizerState::resume(ResumedRequest& request) {
  LocalResumption resumption = encoder->resume(std::move(request));
  tell_encoded(resumption.prompt);
  self->send(dispatch, std::move(resumption));
}

void TokenizerState::tell_encoded(const Prompt& prompt) const {
  if (on_encoded)
    on_encoded(prompt.generate.request, int32_t(prompt.token_ids.size()));
}

TokenizerActor::behavior_type tokenizer_actor(TokenizerActor::stateful_pointer<TokenizerState> self,
                                              PromptEncoder encoder, std::shared_ptr<Backlog> backlog,
                                              OnEncoded on_encoded, DispatchActor dispatch) {
  die_with_text(self, Error::internal);
  auto& state = self->state;
  state.encoder.emplace(std::move(encoder));
  state.backlog = std::move(backlog);
  state.on_encoded = std::move(on_encoded);
  state.dispatch = std::move(dispatch);
  return {
      [=](Generate& request) { self->state.encode(request); },
      [=](ResumedRequest& request) { self->state.resume(request); },
      [=](const Cancel& cancel) { self->send(self->state.dispatch, cancel); },
  };
}

} // namespace millrace
