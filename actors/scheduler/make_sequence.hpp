#pragma once

#include "messages/sequence.hpp"

#include <algorithm>

namespace millrace {

/// Tokens that a choice may have: as many as are asked for and fit the context. The prompt leaves room for
/// one.
inline int32_t token_limit(const Generate& generate, size_t prompt_length, int32_t context_length) {
  return std::min(generate.max_tokens.value_or(context_length), context_length - int32_t(prompt_length));
}

/// What tells apart whose blocks may be shared: the length keeps tenant and salt apart.
inline std::string salt_of(const Generate& generate) {
  return std::to_string(generate.tenant.size()) + ":" + generate.tenant + generate.cache_salt;
}

/// All that an owner needs to run a choice, or to go on with it.
inline Sequence make_sequence(const Prompt& prompt, const SequenceId& id, std::vector<TokenId> emitted_ids,
                              int32_t context_length) {
  const Generate& generate = prompt.generate;
  return {.id = id,
          .prompt_ids = prompt.token_ids,
          .emitted_ids = std::move(emitted_ids),
          .max_tokens = token_limit(generate, prompt.token_ids.size(), context_length),
          .sampling = generate.sampling,
          .stop = generate.stop,
          .stop_ids = generate.stop_ids,
          .ignore_eos = generate.ignore_eos,
          .logprobs = generate.logprobs,
          .prompt_logprobs = id.choice == 0 ? generate.prompt_logprobs : std::nullopt,
          .scored = 0,
          .rank = 0,
          .salt = salt_of(generate)};
}

} // namespace millrace
