#pragma once

// What a client sends to the gateway's ROUTER socket.

#include "messages/ids.hpp"
#include "messages/message.hpp"

#include <map>
#include <optional>

namespace millrace {

/// How a token is drawn from the logits. Ranges are in messages/validate.hpp, the order of the
/// operations in model/sampler.hpp.
struct SamplingParams {
  float temperature = 0.8f;            // 0 selects greedy decoding
  int32_t top_k = 0;                   // 0: off
  float top_p = 0.95f;                 // 1: off
  float min_p = 0.0f;                  // 0: off
  float repetition_penalty = 1.0f;     // 1: off
  float frequency_penalty = 0.0f;      // 0: off
  float presence_penalty = 0.0f;       // 0: off
  std::map<TokenId, float> logit_bias; // added to the logits of these ids
  std::optional<uint64_t> seed;        // absent: the gateway draws one and tells it in Started
  MILLRACE_FIELDS(temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty,
                  logit_bias, seed)
};

/// client -> gateway: generate a continuation. Exactly one of prompt and prompt_ids is present.
struct Generate {
  static constexpr std::string_view kType = "generate";
  StreamId request;                               // unused by any live stream
  std::optional<std::string> prompt;              // UTF-8; encoded by the tokenizer actor
  std::optional<std::vector<TokenId>> prompt_ids; // taken as they are, no BOS added
  bool add_bos = true;                            // BOS before an encoded prompt, if the model has one
  bool parse_special = false;                     // text of control tokens in prompt becomes these tokens
  int32_t n = 1;                                  // choices
  std::optional<int32_t> max_tokens;              // absent: until the context is full
  SamplingParams sampling;
  std::vector<std::string> stop;   // text that ends a choice; not part of the output
  std::vector<TokenId> stop_ids;   // ids that end a choice; not part of the output
  bool ignore_eos = false;         // end-of-generation ids do not end a choice
  std::optional<int32_t> logprobs; // top-n log-probs with each token; 0: only the token's own
  MILLRACE_FIELDS(request, prompt, prompt_ids, add_bos, parse_special, n, max_tokens, sampling, stop,
                  stop_ids, ignore_eos, logprobs)
};

/// client -> gateway: end a request; its choices finish with reason "cancelled".
struct Cancel {
  static constexpr std::string_view kType = "cancel";
  StreamId request;
  MILLRACE_FIELDS(request)
};

/// client -> gateway: send the events of a choice again, from this seq on, over the ROUTER socket.
struct Replay {
  static constexpr std::string_view kType = "replay";
  StreamId request;
  int32_t choice = 0;
  int64_t from_seq = 0;
  MILLRACE_FIELDS(request, choice, from_seq)
};

} // namespace millrace
