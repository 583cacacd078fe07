#pragma once

// Conversations as the golden files hold them.

#include "model/text/chat/chat_template.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace millrace::testing {

inline std::optional<std::string> optional_text(const nlohmann::ordered_json& object, const char* key) {
  return object.contains(key) ? std::optional(object[key].get<std::string>()) : std::nullopt;
}

/// JSON that the template is given as text.
inline std::optional<std::string> optional_json(const nlohmann::ordered_json& object, const char* key) {
  return object.contains(key) ? std::optional(object[key].dump()) : std::nullopt;
}

inline ChatInput chat_input(const nlohmann::ordered_json& conversation) {
  ChatInput input;
  for (const nlohmann::ordered_json& message :
       conversation.value("messages", nlohmann::ordered_json::array()))
    input.turns.push_back({message.at("role"), message.value("content", ""), optional_text(message, "name"),
                           optional_text(message, "tool_call_id"), optional_json(message, "tool_calls")});
  input.tools = optional_json(conversation, "tools");
  input.arguments = optional_json(conversation, "arguments");
  input.add_generation_prompt = conversation.value("add_generation_prompt", true);
  return input;
}

inline ChatTemplateOptions chat_options(const nlohmann::ordered_json& conversation) {
  ChatTemplateOptions options;
  options.bos_token = conversation.value("bos_token", "<s>");
  options.eos_token = conversation.value("eos_token", "</s>");
  options.now = conversation.value("now", 0);
  return options;
}

/// {"text": …, "trusted": …} or {"error": …}
inline nlohmann::ordered_json rendered_json(const nlohmann::ordered_json& conversation) {
  try {
    const std::string text = conversation.at("template");
    const RenderedPrompt prompt =
        ChatTemplate(text, chat_options(conversation)).render(chat_input(conversation));
    nlohmann::ordered_json trusted = nlohmann::ordered_json::array();
    for (const auto& [begin, end] : prompt.trusted)
      trusted.push_back({begin, end});
    return {{"text", prompt.text}, {"trusted", std::move(trusted)}};
  } catch (const TemplateError& error) {
    return {{"error", error.what()}};
  }
}

} // namespace millrace::testing
