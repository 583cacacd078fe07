#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

/// How numbers are stored. Values are GGML's type ids, as found in GGUF files.
enum class DType : uint32_t {
  f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8,
  q2_k = 10, q3_k = 11, q4_k = 12, q5_k = 13, q6_k = 14, iq4_nl = 20, iq4_xs = 23, bf16 = 30,
};

/// A block of `values` numbers takes `bytes` bytes.
struct DTypeTraits {
  const char* name; // as llama.cpp prints it: "Q4_K"
  int values;
  int bytes;
};

/// nullopt for an id that is none of ours.
std::optional<DType> dtype_from_id(uint32_t ggml_type);
const DTypeTraits& traits(DType);

/// Bytes of a row of `cols` numbers; cols must be a multiple of the block.
inline size_t row_bytes(DType type, int64_t cols) {
  return size_t(cols) / size_t(traits(type).values) * size_t(traits(type).bytes);
}

/// A matrix as it lies in a model file: [rows, cols], row-major, rows of whole blocks. Does not own.
struct Matrix {
  DType type = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;

  const std::byte* row(int64_t r) const { return data + size_t(r) * row_bytes(type, cols); }
};

} // namespace millrace
