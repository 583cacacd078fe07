// The bytes are a template, and behind a NUL byte what it is given: a role, contents, tools, arguments,
// calls, each up to the next NUL. Whatever they are, the render ends in a prompt or in a TemplateError that
// keeps its promises.

#include "model/text/chat/chat_template.hpp"
#include "model/text/utf8.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

void check(bool holds) {
  if (!holds)
    std::abort();
}

std::vector<std::string> split(std::string_view bytes) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= bytes.size();) {
    const size_t end = std::min(bytes.find('\0', begin), bytes.size());
    parts.emplace_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

millrace::ChatInput input_of(const std::vector<std::string>& parts) {
  const auto part = [&](size_t i) { return i < parts.size() ? parts[i] : std::string(); };
  const auto optional = [&](size_t i) {
    return i < parts.size() && !parts[i].empty() ? std::optional(parts[i]) : std::nullopt;
  };
  millrace::ChatInput input;
  input.turns = {{"system", part(2), {}, {}, {}},
                 {part(1), part(2), part(1), {}, {}},
                 {"assistant", "", {}, {}, optional(5)},
                 {"user", part(2) + part(2), {}, {}, {}}};
  input.tools = optional(3);
  input.arguments = optional(4);
  return input;
}

void check_ranges(const millrace::RenderedPrompt& prompt) {
  size_t done = 0;
  for (bool first = true; const auto& [begin, end] : prompt.trusted) {
    check(begin < end && end <= prompt.text.size() && (first || begin > done));
    done = end;
    first = false;
  }
}

void check_error(std::string_view text) {
  check(text.size() <= 512);
  while (!text.empty()) {
    const size_t size = millrace::utf8_character_size(text);
    check(size > 0);
    text.remove_prefix(size);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = split({reinterpret_cast<const char*>(data), size});
  millrace::ChatTemplateOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.now = 1732000000;
  options.max_steps = 20'000;
  options.max_output_bytes = 1u << 18;
  try {
    check_ranges(millrace::ChatTemplate(parts[0], options).render(input_of(parts)));
  } catch (const millrace::TemplateError& error) {
    check_error(error.what());
  }
  return 0;
}
