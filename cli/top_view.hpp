#pragma once

// What `millrace top` shows, as text.

#include "messages/stats.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// An answer to Stats and when it came.
struct StatsSample {
  ServerStats stats;
  std::chrono::steady_clock::time_point when;
};

/// Lines without colours or cursor movements, whose text comes from the server and is made harmless. Rates
/// are those between the samples; without an earlier one, or across a restart, they are "-".
std::vector<std::string> top_lines(const StatsSample& now, const std::optional<StatsSample>& before);

/// The lines as one screen, cut to its size: redrawn in place, without flicker.
std::string top_screen(const std::vector<std::string>& lines, size_t rows, size_t columns);

} // namespace millrace
