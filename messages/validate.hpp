#pragma once

// The one door: every field of a request has a range. ZeroMQ, HTTP, CLI and batch all pass through here.

#include "messages/error.hpp"
#include "messages/generation.hpp"

#include <optional>

namespace millrace {

/// What the model and the server allow.
struct Limits {
  int32_t vocab_size = 0; // width of the logits: ids are checked against this, not the tokenizer's length
  int32_t context_length = 0;
  size_t max_prompt_bytes = 4u << 20; // of messages: all texts together
  size_t max_messages = 4096;
  int32_t max_tokens = 1 << 24; // asked for; the context ends a choice earlier
  int32_t max_choices = 16;
  int32_t max_logprobs = 20;
  size_t max_stop = 16;         // strings, and ids
  size_t max_stop_bytes = 1024; // of one string
  size_t max_logit_bias = 1024; // entries
};

/// nullopt if the request may enter. Else invalid_field with the field's path and its limit, or
/// prompt_too_long for prompt_ids that leave no room for a token (a prompt's text is measured once it is
/// encoded). Empty prompts pass: whether BOS stands in for them is known to the tokenizer's actor. The ranges
/// of all fields are in messages/PROTOCOL.md.
std::optional<Failure> validate(const Generate& request, const Limits& limits);

} // namespace millrace
