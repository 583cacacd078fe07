#include "actors/chat_support.hpp"

namespace millrace {

ChatSupport read_chat_support(const GgufFile& file, const Tokenizer& tokenizer) {
  const auto text_of = [&](TokenId id) { return id >= 0 ? std::string(tokenizer.piece(id)) : std::string(); };
  ChatTemplateOptions options;
  options.bos_token = text_of(tokenizer.bos());
  options.eos_token = text_of(tokenizer.eos());
  try {
    const auto text = file.get_string("tokenizer.chat_template").value_or(ChatTemplate::plain());
    return {std::make_shared<const ChatTemplate>(text, options), {}};
  } catch (const TemplateError& error) {
    return {nullptr, std::string("the model's chat template can't be read: ") + error.what()};
  } catch (const FormatError& error) {
    return {nullptr, error.what()};
  }
}

} // namespace millrace
