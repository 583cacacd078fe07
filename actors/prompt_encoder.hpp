#pragma once

#include "actors/chat_support.hpp"
#include "actors/messages.hpp"
#include "actors/pipeline.hpp"
#include "model/text/tokenizer.hpp"

#include <variant>

namespace millrace {

/// What a request gives into token ids.
class PromptEncoder {
public:
  PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer, ChatSupport chat, int32_t context_length);

  /// The request with token ids for its prompt, text or conversation. Refused: no ids at all (an empty prompt
  /// is the BOS token alone, if the model has one and the request does not forbid it), conversations that the
  /// model's template refuses, and prompts that leave no room for a token. Text that is too long even in the
  /// longest tokens is refused without being encoded.
  std::variant<Prompt, Rejected> encode(Generate request) const;
  /// Likewise for a request that an earlier process began, with the ends that its emitted ids contain
  /// already.
  LocalResumption resume(ResumedRequest request) const;

  /// The most bytes of text that one token can stand for.
  size_t longest_token() const { return longest_token_; }

private:
  std::variant<std::vector<TokenId>, Rejected> ids(const Generate& request) const;
  std::variant<std::vector<TokenId>, Rejected> ids_of_messages(const Generate& request) const;
  void find_ends(LocalResumption& resumption) const;
  std::optional<Rejected> check_size(const Generate& request, const char* field, size_t bytes) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatSupport chat_;
  int32_t context_length_;
  size_t longest_token_ = 1;
};

} // namespace millrace
