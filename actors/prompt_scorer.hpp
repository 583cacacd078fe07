#pragma once

#include "actors/scheduler/prompt_queue.hpp"
#include "model/text/tokenizer.hpp"

#include <span>

namespace millrace {

/// Rows of a pass that may give log-probs of prompts: their logits stay below 64 MiB, and their event below a
/// few hundred kB.
int32_t scored_rows_of_a_pass(int32_t vocab_size);

/// What the model makes of a piece of a prompt: each token's log-prob given all before it, and the most
/// likely ones in its place. logits: [tokens that have a row, vocab_size], row-major. nullopt if some of them
/// are no numbers.
std::optional<PromptLogprobs> score(const PromptQueue::Piece& piece, std::span<const float> logits,
                                    size_t vocab_size, const Tokenizer& tokenizer);

} // namespace millrace
