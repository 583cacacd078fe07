#include "cli/line_editor.hpp"

#include "cli/output.hpp"

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <histedit.h>
#include <langinfo.h>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <termios.h>
#include <unistd.h>

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Input = LineEditor::Input;

constexpr size_t kMaxInputBytes = 64u << 20;
constexpr int kHistoryLength = 1000;
constexpr std::string_view kFence = "\"\"\"";

/// Joins the lines of one input. `next` reads a line; its argument says whether it continues another.
Input read_joined(const std::function<Input(bool continued)>& next) {
  std::string text;
  bool fenced = false, continued = false;
  for (;;) {
    Input input = next(continued);
    auto* line = std::get_if<std::string>(&input);
    if (!line) {
      if (std::holds_alternative<EndOfInput>(input) && continued)
        return text; // what there is of it
      if (continued && std::holds_alternative<LineInterrupted>(input))
        return LineInterrupted{.was_empty = false};
      return input;
    }
    if (text.size() + line->size() > kMaxInputBytes)
      throw std::runtime_error("stdin: more than 64 MiB in one question");
    if (!continued && line->starts_with(kFence)) {
      fenced = true;
      line->erase(0, kFence.size());
    }
    if (continued)
      text += '\n';
    continued = true;
    if (fenced && line->ends_with(kFence))
      return text.append(*line, 0, line->size() - kFence.size());
    if (!fenced && !line->ends_with('\\'))
      return text += *line;
    text.append(*line, 0, line->size() - (fenced ? 0 : 1));
  }
}

class ScriptReader : public LineEditor {
public:
  ~ScriptReader() override { std::free(line_); }

  Input read() override {
    return read_joined([this](bool) -> Input {
      errno = 0;
      const ssize_t length = ::getline(&line_, &capacity_, stdin);
      if (length < 0) {
        if (errno != 0 && std::ferror(stdin))
          throw std::system_error(errno, std::generic_category(), "stdin");
        return EndOfInput{};
      }
      std::string line(line_, size_t(length));
      if (line.ends_with('\n'))
        line.pop_back();
      if (line.ends_with('\r'))
        line.pop_back();
      return line;
    });
  }

private:
  char* line_ = nullptr;
  size_t capacity_ = 0;
};

/// libedit reads and draws characters of the locale; without one that has UTF-8 it would take each byte for one.
void use_utf8() {
  const auto is_utf8 = [] { return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0; };
  if (!std::setlocale(LC_CTYPE, "") || !is_utf8())
    std::setlocale(LC_CTYPE, "C.UTF-8");
}

/// Makes the file and its folders where there are none; false if that can't be.
bool make_private_file(const fs::path& path) {
  std::error_code error;
  const auto parent = path.parent_path();
  if (!fs::exists(parent, error)) {
    fs::create_directories(parent.parent_path(), error);
    if (fs::create_directory(parent, error))
      fs::permissions(parent, fs::perms::owner_all, error);
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return false;
  const bool is_ours = ::fchmod(fd, 0600) == 0;
  ::close(fd);
  return is_ours;
}

/// While it lives Ctrl-C is a key: as a signal it would have to find its way out of libedit's read. (libedit's own
/// way to say so, EL_SETTY, is undone when it takes the terminal over.)
class InterruptAsKey {
public:
  explicit InterruptAsKey(const termios& before) : before_(before) {
    termios changed = before_;
    changed.c_cc[VINTR] = _POSIX_VDISABLE;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &changed);
  }
  ~InterruptAsKey() { ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_); }
  InterruptAsKey(const InterruptAsKey&) = delete;
  InterruptAsKey& operator=(const InterruptAsKey&) = delete;

private:
  const termios& before_;
};

class TerminalEditor : public LineEditor {
public:
  explicit TerminalEditor(fs::path history_file) : history_file_(std::move(history_file)) {
    use_utf8();
    ::tcgetattr(STDIN_FILENO, &before_);
    history_.reset(::history_init());
    edit_.reset(::el_init("millrace", stdin, out_, stderr));
    if (!history_ || !edit_)
      throw std::runtime_error("the terminal can't be used for editing");
    HistEvent event;
    ::history(history_.get(), &event, H_SETSIZE, kHistoryLength);
    ::history(history_.get(), &event, H_SETUNIQUE, 1);
    if (!history_file_.empty() && make_private_file(history_file_))
      ::history(history_.get(), &event, H_LOAD, history_file_.c_str());
    else
      history_file_.clear();

    EditLine* edit = edit_.get();
    ::el_set(edit, EL_CLIENTDATA, this);
    ::el_set(edit, EL_PROMPT, &TerminalEditor::prompt);
    ::el_set(edit, EL_EDITOR, "emacs");
    ::el_set(edit, EL_HIST, ::history, history_.get());
    ::el_set(edit, EL_SIGNAL, 1); // draws the line anew when the window changes or the program comes back
    ::el_source(edit, nullptr);
    ::el_set(edit, EL_ADDFN, "millrace-interrupt", "Throw the line away", &TerminalEditor::on_interrupt);
    ::el_set(edit, EL_BIND, "^C", "millrace-interrupt", nullptr);
    ::el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }

  Input read() override {
    const Input input = read_joined([this](bool continued) { return read_line(continued); });
    if (const auto* text = std::get_if<std::string>(&input))
      remember(*text);
    return input;
  }

  void restore_terminal() override { ::tcsetattr(STDIN_FILENO, TCSANOW, &before_); }

private:
  Input read_line(bool continued) {
    continued_ = continued;
    interrupted_.reset();
    int length = 0;
    const InterruptAsKey interrupt_as_key(before_);
    const char* line = ::el_gets(edit_.get(), &length);
    if (interrupted_) {
      std::fputs("^C\n", out_);
      std::fflush(out_);
      return *interrupted_;
    }
    if (!line || length <= 0)
      return EndOfInput{};
    std::string text(line, size_t(length));
    if (text.ends_with('\n'))
      text.pop_back();
    return text;
  }

  void remember(const std::string& text) {
    if (text.find_first_not_of(" \t\n") == text.npos)
      return;
    HistEvent event;
    ::history(history_.get(), &event, H_ENTER, text.c_str());
    if (!history_file_.empty())
      ::history(history_.get(), &event, H_SAVE, history_file_.c_str());
  }

  static TerminalEditor& self(EditLine* edit) {
    void* held = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &held);
    return *static_cast<TerminalEditor*>(held);
  }

  static char* prompt(EditLine* edit) {
    static char first[] = "> ", next[] = ". ";
    return self(edit).continued_ ? next : first;
  }

  static unsigned char on_interrupt(EditLine* edit, int) {
    const LineInfo* line = ::el_line(edit);
    self(edit).interrupted_ = LineInterrupted{.was_empty = line->lastchar == line->buffer};
    return CC_NEWLINE;
  }

  struct EndEdit {
    void operator()(EditLine* edit) const { ::el_end(edit); }
  };
  struct EndHistory {
    void operator()(History* history) const { ::history_end(history); }
  };

  fs::path history_file_;
  std::FILE* const out_ = stdout_is_terminal() ? stdout : stderr;
  termios before_{};
  std::unique_ptr<History, EndHistory> history_;
  std::unique_ptr<EditLine, EndEdit> edit_; // ends first: it points to the history
  bool continued_ = false;
  std::optional<LineInterrupted> interrupted_;
};

} // namespace

std::unique_ptr<LineEditor> make_terminal_editor(fs::path history) {
  return std::make_unique<TerminalEditor>(std::move(history));
}

std::unique_ptr<LineEditor> make_script_reader() {
  return std::make_unique<ScriptReader>();
}

fs::path chat_history_path() {
  const auto from = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  fs::path state = from("XDG_STATE_HOME"); // a relative one is to be ignored, says its specification
  if (!state.is_absolute()) {
    const fs::path home = from("HOME");
    if (!home.is_absolute())
      return {};
    state = home / ".local" / "state";
  }
  return state / "millrace" / "chat_history";
}

} // namespace millrace
