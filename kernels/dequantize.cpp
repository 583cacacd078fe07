#include "kernels/dequantize.hpp"

#include "kernels/block_format.hpp"
#include "kernels/half.hpp"

#include <cassert>
#include <cstring>

namespace millrace {
namespace {

// The order of the float operations is part of the format: tests compare bits with GGML's.
void run_values(float* out, const Run& run, const BlockFormat& format) {
  const float d = f16_to_f32(run.d), dmin = f16_to_f32(run.dmin);
  for (int i = 0; i < kRun; ++i) {
    const int half = format.scales == Scales::sub32_min ? 0 : i / 16;
    const int code = format.table ? kIq4NlValues[run.code[i]] : run.code[i] - format.offset;
    switch (format.scales) {
    case Scales::d: out[i] = d * float(code); break;
    case Scales::d_min: out[i] = d * float(code) + dmin; break;
    case Scales::sub16: out[i] = d * float(int8_t(run.sub[half])) * float(code); break;
    case Scales::sub32_min: case Scales::sub16_min:
      out[i] = d * float(run.sub[half]) * float(code) - dmin * float(run.min[half]);
      break;
    }
  }
}

uint16_t load16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

} // namespace

void dequantize(float* out, const std::byte* in, int64_t n, DType type) {
  assert(n % traits(type).values == 0);
  switch (type) {
  case DType::f32: std::memcpy(out, in, size_t(n) * sizeof(float)); return;
  case DType::f16:
    for (int64_t i = 0; i < n; ++i) out[i] = f16_to_f32(load16(in + 2 * i));
    return;
  case DType::bf16:
    for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(load16(in + 2 * i));
    return;
  default:
    for (int64_t run = 0; run < n / kRun; ++run) run_values(out + run * kRun, read_run(in, run, type), block_format(type));
  }
}

} // namespace millrace
