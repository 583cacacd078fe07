// Layouts after ggml-common.h. Bytes are read one by one: no alignment is assumed.

#include "kernels/block_format.hpp"

#include <cassert>

namespace millrace {
namespace {

uint16_t load16(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }

/// Sixteen bytes: low nibbles are codes 0 … 15, high nibbles 16 … 31.
void read_nibbles(Run& run, const uint8_t* qs) {
  for (int i = 0; i < 16; ++i) {
    run.code[i] = qs[i] & 15;
    run.code[i + 16] = qs[i] >> 4;
  }
}

/// Bit i of these 32 is the fifth bit of code i.
void read_fifth_bits(Run& run, const uint8_t* bits) {
  for (int i = 0; i < kRun; ++i) run.code[i] |= (bits[i / 8] >> (i % 8) & 1) << 4;
}

/// The j-th of eight (scale, minimum) pairs of six bits in the 12 bytes of Q4_K and Q5_K.
void read_scale_min(Run& run, const uint8_t* packed, int j) {
  if (j < 4) {
    run.sub[0] = packed[j] & 63;
    run.min[0] = packed[j + 4] & 63;
  } else {
    run.sub[0] = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    run.min[0] = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
  }
}

/// Q4_K and Q5_K: two neighbouring runs share 32 bytes, the even one in the low nibbles.
void read_shared_nibbles(Run& run, const uint8_t* qs, int j) {
  for (int i = 0; i < kRun; ++i) run.code[i] = qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
}

/// Q2_K and Q3_K: four runs share 32 bytes, two bits each.
void read_pairs_of_bits(Run& run, const uint8_t* qs, int j) {
  for (int i = 0; i < kRun; ++i) run.code[i] = qs[j / 4 * 32 + i] >> (j % 4 * 2) & 3;
}

// scales[16] (low nibble scale, high nibble minimum), qs[64], d, dmin
void read_q2_k(Run& run, const uint8_t* p, int j) {
  run.d = load16(p + 80);
  run.dmin = load16(p + 82);
  for (int h = 0; h < 2; ++h) {
    run.sub[h] = p[2 * j + h] & 15;
    run.min[h] = p[2 * j + h] >> 4;
  }
  read_pairs_of_bits(run, p + 16, j);
}

// hmask[32], qs[64], scales[12] (six bits each, biased by 32), d
void read_q3_k(Run& run, const uint8_t* p, int j) {
  const uint8_t* packed = p + 96;
  run.d = load16(p + 108);
  for (int h = 0; h < 2; ++h) {
    const int group = 2 * j + h;
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    run.sub[h] = uint8_t((low | high << 4) - 32);
  }
  read_pairs_of_bits(run, p + 32, j);
  for (int i = 0; i < kRun; ++i) run.code[i] |= (p[i] >> j & 1) << 2;
}

// d, dmin, scales[12], qs[128]
void read_q4_k(Run& run, const uint8_t* p, int j) {
  run.d = load16(p);
  run.dmin = load16(p + 2);
  read_scale_min(run, p + 4, j);
  read_shared_nibbles(run, p + 16, j);
}

// d, dmin, scales[12], qh[32], qs[128]: bit j of qh[i] is the fifth bit of code i of run j
void read_q5_k(Run& run, const uint8_t* p, int j) {
  run.d = load16(p);
  run.dmin = load16(p + 2);
  read_scale_min(run, p + 4, j);
  read_shared_nibbles(run, p + 48, j);
  for (int i = 0; i < kRun; ++i) run.code[i] |= (p[16 + i] >> j & 1) << 4;
}

// ql[128], qh[64], scales[16] (signed), d. Runs 0, 1 of a half have the low nibbles, 2, 3 the high ones.
void read_q6_k(Run& run, const uint8_t* p, int j) {
  const int half = j / 4, quarter = j % 4;
  run.d = load16(p + 208);
  run.sub = {p[192 + 2 * j], p[192 + 2 * j + 1]};
  for (int i = 0; i < kRun; ++i) {
    const int low = p[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
    const int high = p[128 + half * 32 + i] >> (quarter * 2) & 3;
    run.code[i] = uint8_t(low | high << 4);
  }
}

// d, scales_h (two bits a run), scales_l[4] (four bits a run), qs[128]: six bits each, biased by 32
void read_iq4_xs(Run& run, const uint8_t* p, int j) {
  run.d = load16(p);
  const int low = p[4 + j / 2] >> (j % 2 * 4) & 15, high = load16(p + 2) >> (2 * j) & 3;
  run.sub.fill(uint8_t((low | high << 4) - 32));
  read_nibbles(run, p + 8 + 16 * j);
}

} // namespace

Run read_run(const std::byte* row, int64_t index, DType type) {
  const int64_t per_block = traits(type).values / kRun;
  auto* p = reinterpret_cast<const uint8_t*>(row) + index / per_block * traits(type).bytes;
  const int j = int(index % per_block);
  Run run;
  switch (type) {
  case DType::q4_0: case DType::iq4_nl:
    run.d = load16(p);
    read_nibbles(run, p + 2);
    break;
  case DType::q4_1:
    run.d = load16(p);
    run.dmin = load16(p + 2);
    read_nibbles(run, p + 4);
    break;
  case DType::q5_0:
    run.d = load16(p);
    read_nibbles(run, p + 6);
    read_fifth_bits(run, p + 2);
    break;
  case DType::q5_1:
    run.d = load16(p);
    run.dmin = load16(p + 2);
    read_nibbles(run, p + 8);
    read_fifth_bits(run, p + 4);
    break;
  case DType::q8_0:
    run.d = load16(p);
    for (int i = 0; i < kRun; ++i) run.code[i] = uint8_t(p[2 + i] ^ 0x80); // int8 + 128
    break;
  case DType::q2_k: read_q2_k(run, p, j); break;
  case DType::q3_k: read_q3_k(run, p, j); break;
  case DType::q4_k: read_q4_k(run, p, j); break;
  case DType::q5_k: read_q5_k(run, p, j); break;
  case DType::q6_k: read_q6_k(run, p, j); break;
  case DType::iq4_xs: read_iq4_xs(run, p, j); break;
  case DType::f32: case DType::f16: case DType::bf16: assert(false && "not a quantised type"); break;
  }
  return run;
}

} // namespace millrace
