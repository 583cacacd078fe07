#include "model/text/chat/chat_template.hpp"

#include "model/text/chat/evaluator.hpp"
#include "model/text/chat/json.hpp"
#include "model/text/chat/lexer.hpp"
#include "model/text/chat/parser.hpp"

#include <algorithm>
#include <array>

namespace millrace {
namespace {

using namespace jinja;

constexpr size_t kMaxTemplateBytes = 1u << 20;

// What a request's arguments may not replace: what is set here, and the functions.
constexpr std::array<std::string_view, 5> kReserved = {"messages", "tools", "add_generation_prompt",
                                                       "bos_token", "eos_token"};

Value input_text(Fuel& fuel, const std::string& text) {
  fuel.spend_bytes(text.size());
  return text_value(text, false);
}

/// The API carries a call's arguments as JSON text; templates expect the object, where it is one.
Value with_parsed_arguments(Fuel& fuel, const Value& call) {
  const Value* function = call.dict() ? call.dict()->find("function") : nullptr;
  const Value* arguments = function && function->dict() ? function->dict()->find("arguments") : nullptr;
  if (!arguments || !arguments->text() || !std::string_view(arguments->text()->bytes).starts_with('{'))
    return call;
  Value parsed;
  try {
    parsed = parse_json(fuel, arguments->text()->bytes, "a tool call's arguments");
  } catch (const Failure&) {
    return call;
  }
  Dict changed_function = *function->dict(), changed_call = *call.dict();
  fuel.spend(changed_function.entries().size() + changed_call.entries().size());
  changed_function.set("arguments", std::move(parsed));
  changed_call.set("function", dict(fuel, std::move(changed_function)));
  return dict(fuel, std::move(changed_call));
}

Value tool_calls_value(Fuel& fuel, const std::string& json) {
  const Value parsed = parse_json(fuel, json, "tool_calls");
  if (!parsed.sequence())
    throw Failure("tool_calls is not an array");
  std::vector<Value> calls;
  for (const Value& call : parsed.sequence()->items)
    calls.push_back(with_parsed_arguments(fuel, call));
  return sequence(fuel, SequenceKind::list, std::move(calls));
}

Value message_value(Fuel& fuel, const ChatTurn& turn) {
  fuel.spend(4);
  Dict message;
  message.set("role", input_text(fuel, turn.role));
  message.set("content", input_text(fuel, turn.content));
  if (turn.name)
    message.set("name", input_text(fuel, *turn.name));
  if (turn.tool_call_id)
    message.set("tool_call_id", input_text(fuel, *turn.tool_call_id));
  if (turn.tool_calls)
    message.set("tool_calls", tool_calls_value(fuel, *turn.tool_calls));
  return dict(fuel, std::move(message));
}

Value tools_value(Fuel& fuel, const std::optional<std::string>& json) {
  if (!json)
    return none();
  const Value tools = parse_json(fuel, *json, "tools");
  if (!tools.sequence())
    throw Failure("tools is not an array");
  return tools;
}

bool is_reserved(std::string_view name) {
  return std::ranges::find(kReserved, name) != kReserved.end() ||
         std::ranges::find(functions(), name, &Function::name) != functions().end();
}

} // namespace

struct ChatTemplate::State {
  std::string source;
  ChatTemplateOptions options;
  Body body;
};

ChatTemplate::ChatTemplate(std::string_view text, const ChatTemplateOptions& options) {
  if (text.size() > kMaxTemplateBytes)
    throw TemplateError("the chat template is longer than 1 MiB");
  state_ = std::make_unique<const State>(State{std::string(text), options, parse(text, options.max_depth)});
}

ChatTemplate::~ChatTemplate() = default;

RenderedPrompt ChatTemplate::render(const ChatInput& input) const {
  const ChatTemplateOptions& options = state_->options;
  Context context{Fuel(options.max_steps, options.max_output_bytes, options.max_depth),
                  input.now.value_or(options.now), {}};
  Fuel& fuel = context.fuel;
  Value arguments; // owns the names of variables
  std::map<std::string_view, Value> variables;
  try {
    std::vector<Value> messages;
    for (const ChatTurn& turn : input.turns)
      messages.push_back(message_value(fuel, turn));
    variables["messages"] = sequence(fuel, SequenceKind::list, std::move(messages));
    variables["tools"] = tools_value(fuel, input.tools);
    variables["documents"] = none();
    variables["add_generation_prompt"] = boolean(input.add_generation_prompt);
    variables["bos_token"] = text_value(options.bos_token);
    variables["eos_token"] = text_value(options.eos_token);
    if (input.arguments) {
      arguments = parse_json(fuel, *input.arguments, "the template's arguments");
      if (!arguments.dict())
        throw Failure("the template's arguments are not an object");
      for (const auto& [key, value] : arguments.dict()->entries()) {
        const std::string& name = key.text()->bytes;
        if (is_reserved(name))
          throw Failure("the template's arguments may not set " + name);
        variables[name] = value;
      }
    }
  } catch (const Failure& failure) {
    throw TemplateError(error_text(failure.what()));
  }
  Text text = Evaluator(context, std::move(variables)).run(state_->body);
  return {std::move(text.bytes), std::move(text.trusted)};
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

std::string_view ChatTemplate::plain() {
  return "{% for message in messages %}{{ message.role + ': ' + message.content + '\\n\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";
}

} // namespace millrace
