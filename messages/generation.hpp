#pragma once

// What a client sends to the gateway's ROUTER socket.

#include "messages/ids.hpp"
#include "messages/message.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

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

/// One turn of a conversation, as chat templates know it.
struct ChatMessage {
  std::string role;    // "system", "user", "assistant", "tool" or what else the model's template knows
  std::string content; // never becomes control tokens
  std::optional<std::string> name;
  std::optional<std::string> tool_call_id; // of a tool's answer
  std::optional<std::string> tool_calls;   // JSON text of an array, with an assistant's turn
  MILLRACE_FIELDS(role, content, name, tool_call_id, tool_calls)
};

/// client -> gateway: generate a continuation. Exactly one of prompt, prompt_ids and messages is present.
struct Generate {
  static constexpr std::string_view kType = "generate";
  StreamId request;                               // unused by any live stream
  std::optional<std::string> prompt;              // UTF-8; encoded by the tokenizer actor
  std::optional<std::vector<TokenId>> prompt_ids; // taken as they are, no BOS added
  std::optional<std::vector<ChatMessage>> messages;      // rendered by the model's chat template
  std::optional<std::string> tools;                      // JSON text of an array, for the template
  std::optional<std::string> template_arguments;         // JSON text of an object: more variables for it
  bool add_generation_prompt = true; // the template begins the turn of the answer
  std::optional<int64_t> time;       // Unix time that the template sees; absent: when it was admitted
  bool add_bos = true;                            // BOS before an encoded prompt, if the model has one
  bool parse_special = false;                     // text of control tokens in prompt becomes these tokens
  int32_t n = 1;                                  // choices
  std::optional<int32_t> max_tokens;              // absent: until the context is full; 0: read the prompt only
  SamplingParams sampling;
  std::vector<std::string> stop;   // text that ends a choice; not part of the output
  std::vector<TokenId> stop_ids;   // ids that end a choice; not part of the output
  bool ignore_eos = false;         // end-of-generation ids do not end a choice
  std::optional<int32_t> logprobs; // top-n log-probs with each token; 0: only the token's own
  std::optional<int32_t> prompt_logprobs;     // likewise for the tokens of the prompt: PromptLogprobs
  std::optional<std::string> idempotency_key; // a second request with the same key and body joins the first
  std::vector<std::string> readers;           // CURVE keys (Z85) that may read the stream besides the owner's
  int32_t priority = 0;               // lower is earlier; a request that waits becomes more urgent with time
  std::optional<int64_t> deadline_ms; // from its admission: what is not finished by then ends as "deadline"
  std::optional<int64_t> expires_at;  // Unix time in ms of that deadline; the door sets it, clients' values are dropped
  std::string tenant;     // whose share of the device it uses; a door with keys writes the key's name here
  std::string cache_salt; // only requests of the same tenant and salt share cached blocks of their prompts
  MILLRACE_FIELDS(request, prompt, prompt_ids, messages, tools, template_arguments, add_generation_prompt, time,
                  add_bos, parse_special, n, max_tokens, sampling, stop, stop_ids, ignore_eos, logprobs,
                  prompt_logprobs, idempotency_key, readers, priority, deadline_ms, expires_at, tenant, cache_salt)
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

/// client -> gateway: send all events of a stream over the ROUTER socket, at the pace of the reader: at most
/// `window` numbered events that it has not acknowledged by Read. One for each client and stream; a second one
/// takes the place of the first.
struct Follow {
  static constexpr std::string_view kType = "follow";
  StreamId request;
  std::vector<int64_t> from_seq; // of each choice; missing ones begin at 0
  int32_t window = 256;
  MILLRACE_FIELDS(request, from_seq, window)
};

/// client -> gateway: what a Follow has brought so far was read. Not answered.
struct Read {
  static constexpr std::string_view kType = "read";
  StreamId request;
  std::vector<int64_t> next_seq; // of each choice: all before it was read
  MILLRACE_FIELDS(request, next_seq)
};

/// client -> gateway: tell where a stream stands, with its text so far. Answered by Snapshot.
struct Look {
  static constexpr std::string_view kType = "look";
  StreamId request;
  MILLRACE_FIELDS(request)
};

/// client -> gateway: tell how the server does. Answered by ServerStats.
struct Stats {
  static constexpr std::string_view kType = "stats";
  int32_t max_requests = 64; // rows of ServerStats::requests
  MILLRACE_FIELDS(max_requests)
};

} // namespace millrace
