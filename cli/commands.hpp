#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace millrace {

/// What the chosen command does once its options are read: the exit code, or an exception of cli/errors.hpp.
using Action = std::function<int()>;

// Each adds one command to the program; if the command line chooses it, `chosen` is set. A file each.
void add_generate(CLI::App& program, Action& chosen);
void add_chat(CLI::App& program, Action& chosen);
void add_serve(CLI::App& program, Action& chosen);
void add_tokenize(CLI::App& program, Action& chosen);
void add_score(CLI::App& program, Action& chosen);
void add_inspect(CLI::App& program, Action& chosen);
void add_bench(CLI::App& program, Action& chosen);
void add_top(CLI::App& program, Action& chosen);
void add_keygen(CLI::App& program, Action& chosen);

} // namespace millrace
