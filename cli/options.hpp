#pragma once

// Flags that several commands share. Each reads its number strictly (all of the word, no sign where none
// belongs); ranges of a request's fields are left to validate(), the one door.

#include "kernels/matmul.hpp"
#include "messages/generation.hpp"
#include "messages/validate.hpp"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace millrace {

/// Which model runs on what.
struct ModelOptions {
  std::string path; // empty: the built-in model
  std::string device = "cpu:0";
  int32_t threads = 0;        // 0: all physical cores
  int32_t context_length = 0; // 0: the model's, at most 4096
  Activations activations = Activations::q8;
  int32_t kv_positions = 0; // of all sequences together; 0: as CpuDeviceOptions chooses
  bool no_prefix_cache = false;
};

inline constexpr int32_t kDefaultMaxTokens = 256;

/// -m alone, for commands that don't run the model.
void add_model_path(CLI::App& command, ModelOptions& options);
/// -m, --device, --threads, --ctx, --activations.
void add_model_options(CLI::App& command, ModelOptions& options);
/// Everything from -n to --logprobs, straight into the request.
void add_generation_options(CLI::App& command, Generate& request);

/// Limits that any model keeps: what breaks these is known before a model is loaded.
Limits widest_limits();

/// A flag with one number in [min, max]; anything else is a usage error that says so. `help` should tell the
/// default.
CLI::Option* add_int(CLI::App& command, const std::string& flag, int32_t& target, int32_t min, int32_t max,
                     const std::string& help);

/// Likewise for a number above 0 and at most max.
CLI::Option* add_share(CLI::App& command, const std::string& flag, double& target, double max,
                       const std::string& help);

} // namespace millrace
