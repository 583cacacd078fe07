#include "cli/chat_command.hpp"

#include "cli/output.hpp"
#include "messages/codec.hpp"

#include <charconv>
#include <cstdlib>

namespace millrace {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

template <class T> std::optional<T> number(std::string_view word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size())
    return std::nullopt;
  return value;
}

/// "~/notes.jsonl" as a shell would have it.
std::string expand_home(std::string_view path) {
  const char* home = std::getenv("HOME");
  if (home && path.starts_with("~/"))
    return home + std::string(path.substr(1));
  return std::string(path);
}

const std::pair<std::string_view, ChatCommand> kAlone[] = {
    {"/reset", Reset{}},     {"/undo", Undo{}},     {"/retry", Retry{}},
    {"/stats", ShowStats{}}, {"/help", ShowHelp{}}, {"/exit", Exit{}},
};

ChatCommand parse_seed(std::string_view argument) {
  if (const auto seed = number<uint64_t>(argument))
    return SetSeed{*seed};
  return Misunderstood{"/seed N: N is a whole number between 0 and 18446744073709551615"};
}

ChatCommand parse_temperature(std::string_view argument) {
  const auto temperature = number<float>(argument);
  if (temperature && *temperature >= 0 && *temperature <= 100) // as messages/PROTOCOL.md has it
    return SetTemperature{*temperature};
  return Misunderstood{"/temp T: T is a number between 0 and 100"};
}

} // namespace

std::optional<ChatCommand> parse_chat_command(std::string_view input) {
  if (trim(input).empty())
    return std::nullopt;
  if (!is_valid_utf8(input))
    return Misunderstood{"that is not UTF-8"};
  if (!input.starts_with('/'))
    return Question{std::string(input)};
  if (input.starts_with("//"))
    return Question{std::string(input.substr(1))};

  const auto word = input.substr(0, input.find_first_of(kSpace));
  const auto argument = trim(input.substr(word.size()));
  if (word == "/system")
    return SetSystem{std::string(argument)};
  if (word == "/seed")
    return parse_seed(argument);
  if (word == "/temp")
    return parse_temperature(argument);
  if (word == "/save" || word == "/save!" || word == "/load") {
    if (argument.empty())
      return Misunderstood{std::string(word) + " FILE: which file?"};
    if (word == "/load")
      return Load{expand_home(argument)};
    return Save{expand_home(argument), word == "/save!"};
  }

  for (const auto& [name, command] : kAlone)
    if (word == name)
      return argument.empty() ? command : Misunderstood{std::string(word) + " stands alone"};
  return Misunderstood{"there is no " + quote(word) + ", see /help; a question that begins with a slash begins with two"};
}

std::string_view chat_help() {
  return R"(/reset         forget the conversation; the system message stays
/undo          forget the last question and its answer
/retry         answer the last question again
/system TEXT   what the model is told before the conversation; without TEXT: nothing
/seed N        of the draws from here on: the same seed, the same answers
/temp T        temperature; 0 always takes the likeliest token
/save FILE     write the conversation, one turn a line as JSON; /save! replaces a file
/load FILE     go on with a conversation that was saved
/stats         tokens, speed, and how full the context is
/exit          or Ctrl-D
A \ at the end of a line, or """ around many, makes a question of several lines.
Ctrl-C ends an answer; what was said of it stays in the conversation.
)";
}

} // namespace millrace
