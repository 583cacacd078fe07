#pragma once

// GGUF v2 and v3: header, metadata, tensor directory, data. The file is untrusted: every count and size is checked
// against the file's length before anything is allocated or read. Spec: ggml/docs/gguf.md.

#include "kernels/dtype.hpp"
#include "model/config.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace {

/// A metadata array: numbers keep their stored type; strings view into the file.
struct GgufArray;

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<const GgufArray>>;

struct GgufArray {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string_view>>
    values;
};

/// A tensor of the file: dims as GGUF lists them, fastest first (dims[0] = cols, dims[1] = rows).
struct GgufTensor {
  std::string_view name;
  DType type = DType::f32;
  std::vector<int64_t> dims;
  const std::byte* data = nullptr;
  size_t bytes = 0;

  /// As [rows, cols]; a vector is one row. Throws FormatError for more than two dims.
  Matrix matrix() const;
};

/// An open file. Owns the mapping that all views point into; keep it as long as any of them.
class GgufFile {
public:
  /// Maps the file read-only. Throws FormatError, or std::system_error if it can't be read.
  explicit GgufFile(const std::string& path);
  /// Reads bytes that outlive this object, e.g. the built-in model.
  explicit GgufFile(std::span<const std::byte> bytes);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  uint32_t version() const;
  std::span<const std::byte> bytes() const;
  const std::vector<GgufTensor>& tensors() const;
  const GgufTensor* find_tensor(std::string_view name) const;
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const;
  const GgufValue* find(std::string_view key) const;

  // Typed getters: nullopt where the key is absent, FormatError that names the key where its type or range is wrong.
  std::optional<int64_t> get_int(std::string_view key, int64_t min, int64_t max) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  /// Arrays must have exactly `count` elements if count is given.
  std::optional<std::vector<std::string_view>> get_strings(std::string_view key, std::optional<size_t> count = {}) const;
  std::optional<std::vector<double>> get_floats(std::string_view key, std::optional<size_t> count = {}) const;
  std::optional<std::vector<int64_t>> get_ints(std::string_view key, std::optional<size_t> count = {}) const;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
