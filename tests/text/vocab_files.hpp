#pragma once

// The vocabularies of tests/golden/vocab, and those that are only in the shared data folder.

#include "model/text/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace millrace::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_file(path));
}

/// Where the vocabulary's file is; nullopt if this machine has it not.
inline std::optional<std::filesystem::path> find_vocab_file(const std::string& name) {
  for (const char* folder : {MILLRACE_TEST_DATA "/vocab/", MILLRACE_SHARED_DATA "/vocab/"})
    if (const auto path = std::filesystem::path(folder) / name; exists(path))
      return path;
  return std::nullopt;
}

inline Tokenizer load_tokenizer(const std::filesystem::path& path) {
  return Tokenizer(GgufFile(path.string()));
}

/// One of tests/golden/vocab, kept for the whole run: "ggml-vocab-gpt-2", "tiny/spm-llama".
inline const Tokenizer& golden_tokenizer(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (!tokenizer)
    tokenizer = std::make_unique<Tokenizer>(GgufFile(MILLRACE_TEST_DATA "/vocab/" + name + ".gguf"));
  return *tokenizer;
}

} // namespace millrace::testing
