#pragma once

#include "actors/backlog.hpp"
#include "actors/interfaces.hpp"
#include "actors/prompt_encoder.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>

namespace millrace {

/// Told of each prompt that is encoded, with its tokens, before dispatch knows of it.
using OnEncoded = std::function<void(const StreamId&, int32_t)>;

struct TokenizerState {
  static inline const char* name = "tokenizer";

  explicit TokenizerState(TokenizerActor::stateful_pointer<TokenizerState> self) : self(self) {}

  void encode(Generate& request);
  void resume(ResumedRequest& request);
  void tell_encoded(const Prompt& prompt) const;

  TokenizerActor::stateful_pointer<TokenizerState> self;
  std::optional<PromptEncoder> encoder;
  std::shared_ptr<Backlog> backlog;
  OnEncoded on_encoded;
  DispatchActor dispatch;
};

TokenizerActor::behavior_type tokenizer_actor(TokenizerActor::stateful_pointer<TokenizerState> self,
                                              PromptEncoder encoder, std::shared_ptr<Backlog> backlog,
                                              OnEncoded on_encoded, DispatchActor dispatch);

} // namespace millrace
