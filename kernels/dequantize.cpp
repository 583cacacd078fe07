// The block formats of GGML (ggml-common.h, ggml-quants.c), read byte by byte: no alignment is assumed. The order of the float
// operations is part of the format: tests compare bits.

#include "kernels/dequantize.hpp"

#include "kernels/half.hpp"

#include <array>
#include <cassert>
#include <cstring>

namespace millrace {
namespace {

constexpr std::array<int8_t, 16> kIq4NlValues = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

uint16_t load16(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }
float load_f16(const uint8_t* p) { return f16_to_f32(load16(p)); }

void f32_values(float* out, const uint8_t* in, int64_t n) { std::memcpy(out, in, size_t(n) * sizeof(float)); }

void f16_values(float* out, const uint8_t* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = load_f16(in + 2 * i);
}

void bf16_values(float* out, const uint8_t* in, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(load16(in + 2 * i));
}

// Legacy blocks of 32: low nibbles are values 0 … 15, high nibbles 16 … 31; bit i of the fifth bits belongs to value i.

void q4_0_block(float* out, const uint8_t* in) {
  const float d = load_f16(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = float((in[2 + i] & 15) - 8) * d;
    out[i + 16] = float((in[2 + i] >> 4) - 8) * d;
  }
}

void q4_1_block(float* out, const uint8_t* in) {
  const float d = load_f16(in), m = load_f16(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = float(in[4 + i] & 15) * d + m;
    out[i + 16] = float(in[4 + i] >> 4) * d + m;
  }
}

int fifth_bit(const uint8_t* bits, int i) { return (bits[i / 8] >> (i % 8) & 1) << 4; }

void q5_0_block(float* out, const uint8_t* in) {
  const float d = load_f16(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = float(((in[6 + i] & 15) | fifth_bit(in + 2, i)) - 16) * d;
    out[i + 16] = float(((in[6 + i] >> 4) | fifth_bit(in + 2, i + 16)) - 16) * d;
  }
}

void q5_1_block(float* out, const uint8_t* in) {
  const float d = load_f16(in), m = load_f16(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = float((in[8 + i] & 15) | fifth_bit(in + 4, i)) * d + m;
    out[i + 16] = float((in[8 + i] >> 4) | fifth_bit(in + 4, i + 16)) * d + m;
  }
}

void q8_0_block(float* out, const uint8_t* in) {
  const float d = load_f16(in);
  for (int i = 0; i < 32; ++i) out[i] = float(int8_t(in[2 + i])) * d;
}

void iq4_nl_block(float* out, const uint8_t* in) {
  const float d = load_f16(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * float(kIq4NlValues[in[2 + i] & 15]);
    out[i + 16] = d * float(kIq4NlValues[in[2 + i] >> 4]);
  }
}

// K-quants: superblocks of 256.

// scales[16] (low nibble scale, high nibble minimum of 16 values each), qs[64], d, dmin.
void q2_k_block(float* out, const uint8_t* in) {
  const uint8_t *scales = in, *qs = in + 16;
  const float d = load_f16(in + 80), dmin = load_f16(in + 82);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16, half = i / 128, shift = i % 128 / 32 * 2;
    const int q = qs[half * 32 + i % 32] >> shift & 3;
    out[i] = d * float(scales[group] & 15) * float(q) - dmin * float(scales[group] >> 4);
  }
}

// hmask[32], qs[64], scales[12] (six bits each), d. A clear bit of hmask subtracts 4.
void q3_k_block(float* out, const uint8_t* in) {
  const uint8_t *hmask = in, *qs = in + 32, *packed = in + 96;
  const float d = load_f16(in + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int scale = (low | (packed[8 + group % 4] >> (group / 4 * 2) & 3) << 4) - 32;
    const int half = i / 128, shift = i % 128 / 32 * 2;
    const int high = hmask[i % 32] >> (i / 32) & 1;
    const int q = (qs[half * 32 + i % 32] >> shift & 3) - (high ? 0 : 4);
    out[i] = d * float(scale) * float(q);
  }
}

/// The j-th of eight (scale, minimum) pairs of six bits, packed in 12 bytes.
struct ScaleMin { int scale, min; };
ScaleMin scale_min(const uint8_t* packed, int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  return {(packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4};
}

// d, dmin, scales[12], qs[128]: 64 values share 32 bytes, low nibbles first.
void q4_k_block(float* out, const uint8_t* in) {
  const float d = load_f16(in), dmin = load_f16(in + 2);
  const uint8_t* qs = in + 16;
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(in + 4, j);
    const float d1 = d * float(scale), m1 = dmin * float(min);
    for (int i = 0; i < 32; ++i) out[j * 32 + i] = d1 * float(qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15) - m1;
  }
}

// d, dmin, scales[12], qh[32], qs[128]: bit j of qh[i] is the fifth bit of value i of group j.
void q5_k_block(float* out, const uint8_t* in) {
  const float d = load_f16(in), dmin = load_f16(in + 2);
  const uint8_t *qh = in + 16, *qs = in + 48;
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_min(in + 4, j);
    const float d1 = d * float(scale), m1 = dmin * float(min);
    for (int i = 0; i < 32; ++i) {
      const int q = (qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (qh[i] >> j & 1) << 4;
      out[j * 32 + i] = d1 * float(q) - m1;
    }
  }
}

// ql[128], qh[64], scales[16] (signed, of 16 values each), d. Each half of 128 values: four runs of 32.
void q6_k_block(float* out, const uint8_t* in) {
  const uint8_t *ql = in, *qh = in + 128, *scales = in + 192;
  const float d = load_f16(in + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i % 128 / 32, k = i % 32;
    const int low = ql[half * 64 + run % 2 * 32 + k] >> (run / 2 * 4) & 15;
    const int high = qh[half * 32 + k] >> (run * 2) & 3;
    out[i] = d * float(int8_t(scales[i / 16])) * float((low | high << 4) - 32);
  }
}

} // namespace

void dequantize(float* out, const std::byte* in, int64_t n, DType type) {
  const DTypeTraits& format = traits(type);
  assert(n % format.values == 0);
  auto* bytes = reinterpret_cast<const uint8_t*>(in);
  const auto each = [&](void (*block)(float*, const uint8_t*)) {
    for (int64_t i = 0; i < n; i += format.values, bytes += format.bytes) block(out + i, bytes);
  };
  switch (type) {
  case DType::f32: return f32_values(out, bytes, n);
  case DType::f16: return f16_values(out, bytes, n);
  case DType::bf16: return bf16_values(out, bytes, n);
  case DType::q4_0: return each(q4_0_block);
  case DType::q4_1: return each(q4_1_block);
  case DType::q5_0: return each(q5_0_block);
  case DType::q5_1: return each(q5_1_block);
  case DType::q8_0: return each(q8_0_block);
  case DType::q2_k: return each(q2_k_block);
  case DType::q3_k: return each(q3_k_block);
  case DType::q4_k: return each(q4_k_block);
  case DType::q5_k: return each(q5_k_block);
  case DType::q6_k: return each(q6_k_block);
  case DType::iq4_nl: return each(iq4_nl_block);
  }
}

} // namespace millrace
