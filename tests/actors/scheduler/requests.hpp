#pragma once

#include "actors/messages.hpp"
#include "tests/actors/reader.hpp"

#include <string>

namespace millrace::testing {

/// What tests of the scheduler change of a request.
struct Asked {
  int32_t n = 1, max_tokens = 8;
  int32_t priority = 0;
  std::string tenant = {};
};

inline Prompt prompt(int id, size_t length = 10, const Asked& asked = {}) {
  Prompt prompt;
  prompt.generate.request = stream_id(id);
  prompt.generate.n = asked.n;
  prompt.generate.max_tokens = asked.max_tokens;
  prompt.generate.priority = asked.priority;
  prompt.generate.tenant = asked.tenant;
  prompt.token_ids.assign(length, 5);
  return prompt;
}

/// What a sampler says of one draw.
inline Sampled sampled(const SequenceId& id, int64_t index, std::string reason = {}) {
  Sampled sampled;
  sampled.sequence = id;
  SampledToken token;
  token.sequence = id;
  token.index = index;
  token.id = TokenId(index);
  sampled.tokens.push_back(std::move(token));
  sampled.reason = std::move(reason);
  return sampled;
}

} // namespace millrace::testing
