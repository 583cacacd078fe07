#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace millrace {

// What a person can say to `chat`. Anything that does not begin with a slash is a question; "//" begins one with
// a slash.
struct Question {
  std::string text;
};
struct SetSystem {
  std::string text; // empty: none
};
struct SetSeed {
  uint64_t seed = 0;
};
struct SetTemperature {
  float temperature = 0;
};
struct Save {
  std::string path;
  bool overwrite = false;
};
struct Load {
  std::string path;
};
struct Reset {};
struct Undo {};
struct Retry {};
struct ShowStats {};
struct ShowHelp {};
struct Exit {};
/// What was meant is not clear, and why.
struct Misunderstood {
  std::string message;
};

using ChatCommand = std::variant<Question, SetSystem, SetSeed, SetTemperature, Save, Load, Reset, Undo, Retry,
                                 ShowStats, ShowHelp, Exit, Misunderstood>;

/// nullopt for nothing but white space.
std::optional<ChatCommand> parse_chat_command(std::string_view input);
/// What /help prints.
std::string_view chat_help();

} // namespace millrace
