#include "model/text/chat/chat_template.hpp"

namespace millrace {

struct ChatTemplate::State {
  std::string source;
  ChatTemplateOptions options;
};

ChatTemplate::ChatTemplate(std::string_view text, const ChatTemplateOptions& options)
    : state_(std::make_unique<State>(State{std::string(text), options})) {}

ChatTemplate::~ChatTemplate() = default;

RenderedPrompt ChatTemplate::render(const ChatInput& input) const {
  RenderedPrompt prompt;
  const auto trusted = [&](std::string_view text) {
    prompt.trusted.push_back({prompt.text.size(), prompt.text.size() + text.size()});
    prompt.text += text;
  };
  for (const ChatTurn& turn : input.turns) {
    prompt.text += turn.role;
    trusted(": ");
    prompt.text += turn.content;
    trusted("\n\n");
  }
  if (input.add_generation_prompt)
    trusted("assistant:");
  return prompt;
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

std::string_view ChatTemplate::plain() {
  return "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";
}

} // namespace millrace
