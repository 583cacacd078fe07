#pragma once

#include "kernels/dtype.hpp"

namespace millrace {

/// out[0 … n) = the n numbers stored at `in`, exactly as GGML defines the type. in may be unaligned.
/// n must be a multiple of the block.
void dequantize(float* out, const std::byte* in, int64_t n, DType type);

} // namespace millrace
