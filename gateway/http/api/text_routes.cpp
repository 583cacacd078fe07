#include "gateway/http/api/text_routes.hpp"

#include "gateway/http/api/body.hpp"
#include "gateway/http/api/chat_messages.hpp"
#include "gateway/http/api/field_reader.hpp"
#include "gateway/http/api/logprobs.hpp"
#include "gateway/json.hpp"
#include "messages/utf8.hpp"

namespace millrace::http {
namespace {

constexpr std::string_view kTokenizeFields[] = {"model", "content", "prompt", "messages", "add_special",
                                                "add_special_tokens", "parse_special", "with_pieces", "tools",
                                                "tool_choice", "chat_template_kwargs", "add_generation_prompt"};
constexpr std::string_view kDetokenizeFields[] = {"model", "tokens", "with_pieces"};

Response answer(std::string body) {
  Response response;
  response.body = std::move(body);
  return response;
}

ApiError no_tokenizer() {
  return unsupported({}, "this server has no tokenizer");
}

std::variant<std::vector<TokenId>, ApiError> encode_text(FieldReader& fields, const RequestRules& rules) {
  const bool is_prompt = fields.find("prompt") != nullptr;
  std::string text;
  EncodeOptions options;
  options.add_bos = is_prompt;
  fields.read(is_prompt ? "prompt" : "content", text);
  fields.read("add_special", options.add_bos);
  fields.read("add_special_tokens", options.add_bos);
  fields.read("parse_special", options.parse_special);
  if (text.size() > rules.limits.max_prompt_bytes)
    fields.fail(is_prompt ? "prompt" : "content",
                "has more than " + std::to_string(rules.limits.max_prompt_bytes) + " bytes");
  if (fields.failed())
    return *fields.error();
  if (!rules.tokenizer)
    return no_tokenizer();
  return rules.tokenizer->encode(text, options);
}

std::variant<std::vector<TokenId>, ApiError> encode_messages(FieldReader& fields, const RequestRules& rules,
                                                             const ChatTemplate* chat_template) {
  if (!rules.tokenizer)
    return no_tokenizer();
  if (!chat_template)
    return unsupported("messages", "cannot be rendered: the server has no chat template here");
  Generate generate;
  ChatInput input;
  read_conversation(fields, generate);
  fields.read("add_generation_prompt", input.add_generation_prompt);
  if (fields.failed())
    return *fields.error();
  if (const auto failure = validate(generate, rules.limits))
    return api_error(*failure);
  for (ChatMessage& message : *generate.messages)
    input.turns.push_back({std::move(message.role), std::move(message.content), std::move(message.name),
                           std::move(message.tool_call_id), std::move(message.tool_calls)});
  input.tools = std::move(generate.tools);
  input.arguments = std::move(generate.template_arguments);
  try {
    return rules.tokenizer->encode(chat_template->render(input));
  } catch (const TemplateError& error) {
    return bad_field("messages", std::string("are refused by the chat template: ") + error.what());
  }
}

void append_piece(std::string& out, TokenId id, const Tokenizer& tokenizer) {
  const std::string piece = token_text(id, Bytes{std::string(tokenizer.bytes(id))}, &tokenizer);
  out += "{\"id\":";
  append_json(out, int64_t{id});
  out += ",\"piece\":";
  if (is_valid_utf8(piece))
    append_json(out, std::string_view{piece});
  else
    append_json(out, Bytes{piece});
  out += '}';
}

} // namespace

Response tokenize(std::string_view body, const RequestRules& rules, const ChatTemplate* chat_template) {
  auto document = read_body(body, rules.json, kTokenizeFields);
  if (const auto* error = std::get_if<ApiError>(&document))
    return to_response(*error);
  FieldReader fields(std::get<Json>(document));
  const int sources = (fields.find("content") != nullptr) + (fields.find("prompt") != nullptr) +
                      (fields.find("messages") != nullptr);
  if (sources != 1)
    return to_response(bad_field("content", "or prompt or messages must be given, and only one of them"));
  bool with_pieces = false;
  fields.read("with_pieces", with_pieces);

  const auto encoded = fields.find("messages") ? encode_messages(fields, rules, chat_template)
                                               : encode_text(fields, rules);
  if (const auto* error = std::get_if<ApiError>(&encoded))
    return to_response(*error);
  const auto& ids = std::get<std::vector<TokenId>>(encoded);
  std::string out = "{\"tokens\":";
  if (with_pieces) {
    for (size_t i = 0; i < ids.size(); ++i) {
      out += i == 0 ? '[' : ',';
      append_piece(out, ids[i], *rules.tokenizer);
    }
    out += ids.empty() ? "[]" : "]";
  } else {
    append_json_value(out, ids);
  }
  out += ",\"count\":";
  append_json(out, uint64_t{ids.size()});
  out += ",\"max_model_len\":";
  append_json(out, int64_t{rules.limits.context_length});
  return answer(out + '}');
}

Response detokenize(std::string_view body, const RequestRules& rules) {
  auto document = read_body(body, rules.json, kDetokenizeFields);
  if (const auto* error = std::get_if<ApiError>(&document))
    return to_response(*error);
  FieldReader fields(std::get<Json>(document));
  std::vector<TokenId> ids;
  bool with_pieces = false;
  fields.read("with_pieces", with_pieces);
  if (!fields.find("tokens"))
    fields.fail("tokens", "is required");
  fields.read("tokens", ids);
  for (size_t i = 0; i < ids.size() && !fields.failed(); ++i)
    if (ids[i] < 0 || ids[i] >= rules.limits.vocab_size)
      fields.fail("tokens[" + std::to_string(i) + ']',
                  "must be a token id from 0 to " + std::to_string(rules.limits.vocab_size - 1));
  if (fields.failed())
    return to_response(*fields.error());
  if (!rules.tokenizer)
    return to_response(no_tokenizer());
  std::string out = "{\"content\":";
  append_json(out, std::string_view{rules.tokenizer->decode(ids)});
  if (with_pieces) {
    out += ",\"pieces\":[";
    for (size_t i = 0; i < ids.size(); ++i) {
      out += i == 0 ? "{\"piece\":" : ",{\"piece\":";
      append_json(out, rules.tokenizer->piece(ids[i]));
      out += ",\"bytes\":";
      append_json(out, Bytes{std::string(rules.tokenizer->bytes(ids[i]))});
      out += '}';
    }
    out += ']';
  }
  return answer(out + '}');
}

} // namespace millrace::http
