#pragma once

// How long a pass takes.

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::simulate {

/// Seconds of a pass: `fixed`, since each pass reads the weights; so much for each row; and so much for each position that a row
/// sees, for attention.
struct PassCost {
  double fixed = 0, row = 0, position = 0;
  double seconds(int64_t rows, int64_t visible) const { return fixed + row * double(rows) + position * double(visible); }
};

/// The defaults are plausible for Qwen2.5-0.5B on two virtual cores, not measured: a decode step of one row takes 30 ms and
/// 3 ms more for each further row, a pass over 128 tokens of a prompt 4 ms for each.
struct CostModel {
  PassCost prefill{.fixed = 0.026, .row = 0.0038, .position = 1e-6};
  PassCost decode{.fixed = 0.027, .row = 0.003, .position = 1e-6};
  double loop = 100e-6; // seconds from the end of a pass until its tokens are drawn and known
  std::string source = "defaults: plausible for Qwen2.5-0.5B on 2 virtual cores, not measured";

  /// Requests a second that a device can serve at most, with so many sequences in a step.
  double capacity(int32_t prompt_tokens, int32_t output_tokens, int32_t batch) const;
};

/// What `millrace bench` found.
struct BenchReport {
  std::string cpu, model;
  int32_t threads = 0;
  struct Phase {
    int32_t tokens = 0;
    double tokens_s = 0;
  } prefill, decode;
  double loop_overhead_us = 0;
};

/// Reads the output of `millrace bench`, its table or that of --json. Throws std::invalid_argument that says what is missing.
BenchReport read_bench(const std::string& text);

/// Passes of the CPU do the same for each row, read or generated. So one line goes through all points (rows of a pass, seconds):
/// a decode step has one row, a pass over a prompt at most `chunk`. What a position costs can't be told from that; it is left
/// in the cost of rows. Throws std::invalid_argument if the points give no line that rises.
CostModel fit(const std::vector<BenchReport>& reports, int32_t chunk);

} // namespace millrace::simulate
