// The program: one command per file; this one reads the command line and turns exceptions into exit codes.

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/output.hpp"
#include "cli/version.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace generate "Once upon a time"              a story from the built-in model
  millrace generate -m model.gguf -n 64 --seed 1 -  prompt from stdin, the same text each time
  millrace chat                                     a conversation, with history and editing
  millrace serve                                    requests and token streams over ZeroMQ
  millrace score "Once upon a time"                 what the model thinks of a text, token by token

`millrace COMMAND --help` tells the flags of a command.)";

int complain(const std::string& text, int code) {
  std::fprintf(stderr, "millrace: %s\n", text.c_str());
  return code;
}

/// The help of the program, or of the command that was chosen.
std::string help_text(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  std::string text = chosen.empty() ? program.help() : chosen.front()->help("millrace");
  for (size_t at; (at = text.find("\n\n\n")) != text.npos;)
    text.erase(at, 1); // CLI11 puts two blank lines between groups
  return text;
}

/// Reads the command line; a code if there is nothing left to run.
std::optional<int> parse(CLI::App& program, int argc, char** argv) {
  try {
    program.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    print(help_text(program));
    return 0;
  } catch (const CLI::CallForVersion&) {
    print(version_text());
    return 0;
  } catch (const CLI::ParseError& e) {
    return complain(std::string(e.what()) + "\nTry `millrace --help`.", kExitUsage);
  }
}

/// Fills the places of closed standard descriptors: the next descriptor that is opened would get such a number,
/// and a signalfd would be read as stdin, or text be written into a socket. Each is opened for the direction
/// that nobody uses, so using it still fails.
void fill_closed_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
        std::_Exit(kExitFailure); // the lowest free number is taken, so /dev/null can't be opened
}

int run(int argc, char** argv) {
  CLI::App program("Serves language models as a pipeline of actors, and shows how they work.", "millrace");
  program.require_subcommand(0, 1); // none is told below, in better words
  program.set_version_flag("--version", std::string(), "Version, CPU paths and libraries");
  program.get_formatter()->column_width(30);
  program.footer(kExamples);

  Action chosen;
  add_generate(program, chosen);
  add_chat(program, chosen);
  add_serve(program, chosen);
  add_tokenize(program, chosen);
  add_score(program, chosen);
  add_inspect(program, chosen);
  add_bench(program, chosen);
  add_top(program, chosen);
  add_keygen(program, chosen);

  if (const auto code = parse(program, argc, argv))
    return *code;
  if (!chosen)
    return complain("which command? Try `millrace --help`.", kExitUsage);
  return chosen();
}

} // namespace
} // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  fill_closed_descriptors();
  std::signal(SIGPIPE, SIG_IGN); // writing says EPIPE instead, see print()
  std::signal(SIGXFSZ, SIG_IGN); // and EFBIG, which is another full disk to a journal
  try {
    return run(argc, argv);
  } catch (const UsageError& e) {
    return complain(e.what(), kExitUsage);
  } catch (const OutputClosed&) {
    return kExitOutputClosed;
  } catch (const std::exception& e) {
    return complain(e.what(), kExitFailure);
  }
}
