#pragma once

#include "model/gguf.hpp"
#include "model/text/chat/chat_template.hpp"
#include "model/text/tokenizer.hpp"

#include <memory>
#include <string>

namespace millrace {

/// What conversations are rendered with.
struct ChatSupport {
  std::shared_ptr<const ChatTemplate> chat_template; // nullptr: conversations are refused as unsupported …
  std::string refusal = "there is no chat template"; // … for this reason
};

/// The template of a model's file (tokenizer.chat_template), or ChatTemplate::plain() if it has none. Where
/// it can't be read, the reason stands in its place: the model still continues prompts.
ChatSupport read_chat_support(const GgufFile& file, const Tokenizer& tokenizer);

} // namespace millrace
