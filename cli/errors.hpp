#pragma once

#include "messages/error.hpp"

#include <stdexcept>
#include <string>

namespace millrace {

// What the shell is told. 130 and 141 are what it would see of a program that the signal ended.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 128 + 2;   // SIGINT
inline constexpr int kExitOutputClosed = 128 + 13; // SIGPIPE

/// The command line asks for something that does not exist or is out of range. The text names the flag and
/// the limit.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The reader of stdout has gone: nothing to say, nobody to say it to.
struct OutputClosed : std::runtime_error {
  OutputClosed() : std::runtime_error("stdout was closed") {}
};

/// Throws what a refusal means here: UsageError, with the flag in place of the field, where a field is to
/// blame, std::runtime_error otherwise.
[[noreturn]] void throw_refusal(const Failure& failure);

} // namespace millrace
