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
#include <utility>
#include <variant>
#include <vector>

namespace millrace {

/// What a file may hold at most. With them, and since every count is checked against the bytes that are left, what a
/// GgufFile allocates stays below about ten times the file's length.
namespace gguf_limits {
inline constexpr uint64_t kKeys = 1 << 16;
inline constexpr uint64_t kTensors = 1 << 16;
inline constexpr uint64_t kKeyLength = 65535;        // the specification's
inline constexpr uint64_t kTensorNameLength = 64;    // the specification's
inline constexpr uint64_t kTensorDims = 4;           // the specification's
inline constexpr uint64_t kStringLength = 16 << 20;  // of a metadata string
inline constexpr uint64_t kArrayElements = 1 << 25;  // of all arrays together
inline constexpr uint64_t kMinAlignment = 8;         // the specification's
inline constexpr uint64_t kMaxAlignment = 1 << 16;
} // namespace gguf_limits

struct GgufArray;

/// A metadata value. Integers and floats are widened; strings view into the file.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<const GgufArray>>;

/// A metadata array: elements are widened as single values are. Arrays of arrays are refused.
struct GgufArray {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string_view>>
    values;
};

/// A tensor of the file: dims as GGUF lists them, fastest first (dims[0] = cols, dims[1] = rows).
struct GgufTensor {
  std::string_view name;
  DType type = DType::f32;
  std::vector<int64_t> dims; // 1 to 4, each at least 1; dims[0] is a multiple of the type's block
  const std::byte* data = nullptr;
  size_t bytes = 0;

  /// As [rows, cols]; a vector is one row. Throws FormatError for more than two dims.
  Matrix matrix() const;
};

/// Bytes of a tensor; nullopt if a dim is 0, if dims[0] is not a multiple of the block, or if the number of elements or
/// bytes is beyond 2^63 - 1.
std::optional<uint64_t> tensor_bytes(DType type, std::span<const uint64_t> dims);

/// Text out of a file, made fit for a terminal, a log or JSON: printable ASCII is kept, other bytes are written as \xHH,
/// and what is longer than 80 characters is cut.
std::string printable(std::string_view untrusted);

/// An open file. Owns the mapping that all views point into; keep it as long as any of them.
/// Hazard of every mapping: if another process truncates the file while it is open, reading what was cut off kills this
/// process with SIGBUS. Replace a model file by renaming a new one over it; never write into it.
class GgufFile {
public:
  /// Maps the file read-only. Throws FormatError, or std::system_error if it can't be read.
  explicit GgufFile(const std::string& path);
  /// Reads bytes that outlive this object, e.g. the built-in model. Throws FormatError.
  explicit GgufFile(std::span<const std::byte> bytes);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  uint32_t version() const;
  std::span<const std::byte> bytes() const;
  /// In the order of the file.
  const std::vector<GgufTensor>& tensors() const;
  const GgufTensor* find_tensor(std::string_view name) const;
  /// In the order of the file.
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
