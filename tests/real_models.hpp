#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace millrace {

/// Where tools/fetch_models puts a model; tests skip with that advice where it is absent.
inline std::filesystem::path real_model(const std::string& name) {
  if (auto* folder = std::getenv("MILLRACE_MODELS")) return std::filesystem::path(folder) / name;
  auto* home = std::getenv("HOME");
  return std::filesystem::path(home ? home : "") / ".cache/millrace/models" / name;
}

} // namespace millrace
