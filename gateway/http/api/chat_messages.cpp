#include "gateway/http/api/chat_messages.hpp"

#include <algorithm>

namespace millrace::http {
namespace {

/// The text of one element of a content list.
std::optional<ApiError> append_part(const std::string& path, const Json& part, std::string& text) {
  if (!part.is_object())
    return bad_field(path, "must be an object, not " + std::string(kind_of(part)));
  FieldReader fields(part, path);
  std::string type;
  fields.read("type", type);
  if (!fields.failed() && type != "text")
    return unsupported(fields.path_of("type"), "must be \"text\": this server reads nothing else");
  if (!fields.failed() && !fields.find("text"))
    fields.fail("text", "is required");
  std::string words;
  fields.read("text", words);
  text += words;
  return fields.error();
}

void read_content(FieldReader& fields, std::string& out) {
  const Json* content = fields.failed() ? nullptr : fields.find("content");
  if (!content)
    return; // null beside tool calls
  if (content->is_string()) {
    out = content->get_ref<const std::string&>();
    return;
  }
  const std::string path = fields.path_of("content");
  if (!content->is_array())
    return fields.fail("content", "must be a string or an array of text parts, not " + std::string(kind_of(*content)));
  for (size_t i = 0; i < content->size(); ++i) {
    if (i > 0)
      out += '\n';
    if (auto error = append_part(path + '[' + std::to_string(i) + ']', (*content)[i], out))
      return fields.fail(std::move(*error));
  }
}

void read_tool_calls(FieldReader& fields, std::optional<std::string>& out) {
  const Json* found = fields.failed() ? nullptr : fields.find("tool_calls");
  if (!found)
    return;
  if (!found->is_array())
    return fields.fail("tool_calls", "must be an array, not " + std::string(kind_of(*found)));
  out = write_json(*found);
}

std::optional<ApiError> read_message(const std::string& path, const Json& json, ChatMessage& out) {
  if (!json.is_object())
    return bad_field(path, "must be an object, not " + std::string(kind_of(json)));
  FieldReader fields(json, path);
  if (!fields.find("role"))
    fields.fail("role", "is required");
  fields.read("role", out.role);
  read_content(fields, out.content);
  fields.read("name", out.name);
  fields.read("tool_call_id", out.tool_call_id);
  read_tool_calls(fields, out.tool_calls);
  if (!fields.failed() && !fields.find("content") && !out.tool_calls)
    fields.fail("content", "is required");
  return fields.error();
}

void read_messages(FieldReader& fields, Generate& out) {
  const Json* messages = fields.failed() ? nullptr : fields.find("messages");
  if (!messages)
    return fields.fail("messages", "is required");
  if (!messages->is_array())
    return fields.fail("messages", "must be an array, not " + std::string(kind_of(*messages)));
  auto& turns = out.messages.emplace();
  for (size_t i = 0; i < messages->size(); ++i)
    if (auto error = read_message(fields.path_of("messages") + '[' + std::to_string(i) + ']', (*messages)[i],
                                  turns.emplace_back()))
      return fields.fail(std::move(*error));
}

/// tool_choice "none" hides the tools from the template; to force a call needs a grammar.
void read_tools(FieldReader& fields, std::optional<std::string>& out) {
  const Json* choice = fields.failed() ? nullptr : fields.find("tool_choice");
  if (choice && *choice != "none" && *choice != "auto")
    return fields.fail(unsupported(fields.path_of("tool_choice"), "must be \"none\" or \"auto\""));
  const Json* tools = fields.failed() ? nullptr : fields.find("tools");
  if (!tools)
    return;
  if (!tools->is_array())
    return fields.fail("tools", "must be an array, not " + std::string(kind_of(*tools)));
  for (size_t i = 0; i < tools->size(); ++i)
    if (!(*tools)[i].is_object())
      return fields.fail("tools[" + std::to_string(i) + "]",
                         "must be an object, not " + std::string(kind_of((*tools)[i])));
  if (!tools->empty() && !(choice && *choice == "none"))
    out = write_json(*tools);
}

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= 64 && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

/// Variables for the template, which runs on fuel: names and size are all that matters here.
void read_template_arguments(FieldReader& fields, std::optional<std::string>& out) {
  static constexpr size_t kMaxBytes = 64u << 10;
  const Json* arguments = fields.failed() ? nullptr : fields.find("chat_template_kwargs");
  if (!arguments)
    return;
  if (!arguments->is_object())
    return fields.fail("chat_template_kwargs", "must be an object, not " + std::string(kind_of(*arguments)));
  for (const auto& [name, value] : arguments->get_ref<const Json::object_t&>())
    if (!is_identifier(name))
      return fields.fail("chat_template_kwargs", "must have identifiers as names");
  if (arguments->empty())
    return;
  out = write_json(*arguments);
  if (out->size() > kMaxBytes)
    fields.fail("chat_template_kwargs", "must take at most " + std::to_string(kMaxBytes) + " bytes as JSON");
}

} // namespace

void read_conversation(FieldReader& fields, Generate& out) {
  read_messages(fields, out);
  read_tools(fields, out.tools);
  read_template_arguments(fields, out.template_arguments);
}

} // namespace millrace::http
