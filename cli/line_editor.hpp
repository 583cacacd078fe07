#pragma once

// Where a conversation's lines come from: a person at a terminal, who can edit and recall them, or a script.

#include <filesystem>
#include <memory>
#include <string>
#include <variant>

namespace millrace {

struct EndOfInput {};
/// Ctrl-C: what was typed is thrown away.
struct LineInterrupted {
  bool was_empty = false; // nothing had been typed
};

class LineEditor {
public:
  /// Lines that belong together, joined by newlines: those that end in a backslash and the one after, or what
  /// stands between a """ that begins a line and one that ends a line.
  using Input = std::variant<std::string, LineInterrupted, EndOfInput>;

  virtual ~LineEditor() = default;
  virtual Input read() = 0;
  /// The terminal as it was before; from any thread, when the process ends without more ado.
  virtual void restore_terminal() {}
};

/// libedit on the standard descriptors, with the keys of ~/.editrc. `history`: kept between runs in that file,
/// which only its owner may read; empty: nowhere. A history that can't be read or written is none.
std::unique_ptr<LineEditor> make_terminal_editor(std::filesystem::path history);
/// Lines of stdin as they are, without a prompt; the last one may lack its newline. Throws std::runtime_error for
/// more than 64 MiB at once.
std::unique_ptr<LineEditor> make_script_reader();

/// $XDG_STATE_HOME/millrace/chat_history, by default below ~/.local/state; empty if there is no home.
std::filesystem::path chat_history_path();

} // namespace millrace
