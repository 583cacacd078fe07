#pragma once

#include "actors/backlog.hpp"
#include "actors/interfaces.hpp"
#include "model/text/tokenizer.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <variant>

namespace millrace {

/// The most bytes of text that one token can stand for.
size_t longest_token(const Tokenizer& tokenizer);

/// The request with token ids for its prompt. Refused: no ids at all (an empty prompt is the BOS token alone, if the model has
/// one and the request does not forbid it), and prompts that leave no room for a token. Text that is too long even in tokens
/// of `longest_token` bytes is refused without being encoded.
std::variant<Prompt, Rejected> encode_prompt(Generate request, const Tokenizer& tokenizer, size_t longest_token,
                                             int32_t context_length);

struct TokenizerState {
  static inline const char* name = "tokenizer";

  explicit TokenizerState(TokenizerActor::stateful_pointer<TokenizerState> self) : self(self) {}

  void encode(Generate& request);

  TokenizerActor::stateful_pointer<TokenizerState> self;
  std::shared_ptr<const Tokenizer> tokenizer;
  size_t longest_token = 1;
  int32_t context_length = 0;
  std::shared_ptr<Backlog> backlog;
  DispatchActor dispatch;
};

TokenizerActor::behavior_type tokenizer_actor(TokenizerActor::stateful_pointer<TokenizerState> self,
                                              std::shared_ptr<const Tokenizer> tokenizer, int32_t context_length,
                                              std::shared_ptr<Backlog> backlog, DispatchActor dispatch);

} // namespace millrace
