#pragma once

// A model's chat template: turns in, prompt out. The template is a program in a file that somebody else wrote
// (a subset of Jinja), so it runs on fuel; the turns are text of somebody else still, so what comes from them
// is marked and never becomes a control token.

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// The template sees an object of role, content and what else is given, in this order.
struct ChatTurn {
  std::string role, content;
  std::optional<std::string> name, tool_call_id;
  std::optional<std::string>
      tool_calls; // JSON text of an array; a call's arguments become an object if they are one's text
};

/// JSON texts may nest 64 levels; the order of their members is kept.
struct ChatInput {
  std::vector<ChatTurn> turns;
  std::optional<std::string> tools; // JSON text of an array; the template sees None without
  std::optional<std::string>
      arguments; // JSON text of an object: more variables, none of those that are set here
  bool add_generation_prompt = true;
  std::optional<int64_t> now = {}; // Unix time for strftime_now; absent: as in ChatTemplateOptions
};

/// A prompt whose bytes know where they come from.
struct RenderedPrompt {
  /// text[begin, end) comes from the template or the model; all else from turns, tools or arguments.
  struct Range {
    size_t begin = 0, end = 0;
  };
  std::string text;
  std::vector<Range> trusted; // ascending, not adjacent
};

/// The template refuses its input (raise_exception), runs out of fuel or uses what an input does not have.
/// what() is valid UTF-8, at most 512 bytes, and holds no text of the input.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ChatTemplateOptions {
  std::string bos_token, eos_token; // their text, as the template sees them
  int64_t now = 0;                  // Unix time for strftime_now, local zone; 0: the clock
  int64_t max_steps = 1'000'000;    // evaluated nodes and bytes handled in bulk, together
  size_t max_output_bytes = 16u << 20;
  int max_depth = 200; // of the syntax, of macro calls, of values
};

/// Immutable and thread-safe.
class ChatTemplate {
public:
  /// Throws TemplateError naming line and what is not understood. The text may be at most 1 MiB.
  ChatTemplate(std::string_view text, const ChatTemplateOptions& options);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  /// Throws TemplateError.
  RenderedPrompt render(const ChatInput& input) const;
  const std::string& source() const;

  /// For a model without one: "role: content" lines, separated by blank lines, and "assistant:" at the end.
  static std::string_view plain();

private:
  struct State;
  std::unique_ptr<const State> state_;
};

} // namespace millrace
