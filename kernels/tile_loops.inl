// The loops over tiles, written once for all vector widths. Included inside the target region of each path, after `Vec`, which
// wraps that path's instructions; lanes are output rows, so the width changes nothing of what a lane computes.

using Float = Vec::Float;
using Int = Vec::Int;

constexpr int kHalves = kTileRows / Vec::kLanes; // vectors that make a tile
constexpr int kVectorBytes = 4 * Vec::kLanes;    // of the 64 bytes that hold four codes of each row, this half's share

/// The unsigned codes of one run: u[j] holds codes 4j … 4j+3 of each lane.
template <BlockFormat F> inline void expand_codes(Int u[8], const uint8_t* codes, int half) {
  codes += half * kVectorBytes;
  if constexpr (F.bits == 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) u[j] = Vec::load(codes + 64 * j);
    return;
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Int both = Vec::load(codes + 64 * j);
    u[j] = Vec::bit_and(both, Vec::bytes(15));
    u[j + 4] = Vec::bit_and(Vec::template right<4>(both), Vec::bytes(15));
  }
  if constexpr (F.bits == 5) {
    const Int fifth = Vec::load(codes + 256), mask = Vec::bytes(16);
    u[0] = Vec::or_masked(u[0], Vec::template left<4>(fifth), mask);
    u[1] = Vec::or_masked(u[1], Vec::template left<3>(fifth), mask);
    u[2] = Vec::or_masked(u[2], Vec::template left<2>(fifth), mask);
    u[3] = Vec::or_masked(u[3], Vec::template left<1>(fifth), mask);
    u[4] = Vec::or_masked(u[4], fifth, mask);
    u[5] = Vec::or_masked(u[5], Vec::template right<1>(fifth), mask);
    u[6] = Vec::or_masked(u[6], Vec::template right<2>(fifth), mask);
    u[7] = Vec::or_masked(u[7], Vec::template right<3>(fifth), mask);
  }
  if constexpr (F.bits == 6)
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const Int upper = Vec::load(codes + 256 + 64 * p), mask = Vec::bytes(48);
      u[4 * p] = Vec::or_masked(u[4 * p], Vec::template left<4>(upper), mask);
      u[4 * p + 1] = Vec::or_masked(u[4 * p + 1], Vec::template left<2>(upper), mask);
      u[4 * p + 2] = Vec::or_masked(u[4 * p + 2], upper, mask);
      u[4 * p + 3] = Vec::or_masked(u[4 * p + 3], Vec::template right<2>(upper), mask);
    }
  if constexpr (F.table) // as code + 128, like 8-bit codes
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) u[j] = Vec::lookup(Vec::table128(kIq4NlValues.data()), u[j]);
}

/// Codes that take all eight bits: vpmaddubsw would saturate on them.
template <BlockFormat F> constexpr bool kWide = F.bits == 8 || F.table;
/// What is taken from each code.
template <BlockFormat F> constexpr int kOffset = F.table ? 128 : F.offset;

/// Scales of one run, a lane per row.
template <BlockFormat F> struct RunScales {
  Float d, dmin;      // of the group
  Float scale, min;   // of the run, for the formats with one scale per run
  Int sub[2], mins[2];
};

template <BlockFormat F> inline void load_group(RunScales<F>& s, const uint8_t* group, int half) {
  s.d = Vec::load_f16(group + 2 * Vec::kLanes * half);
  if constexpr (F.has_min()) s.dmin = Vec::load_f16(group + 32 + 2 * Vec::kLanes * half);
  if constexpr (F.scales == Scales::d) s.scale = s.d;
  if constexpr (F.scales == Scales::d_min) {
    s.scale = s.d;
    s.min = s.dmin;
  }
}

template <BlockFormat F> inline void load_run(RunScales<F>& s, const uint8_t* run, int half) {
  const uint8_t* at = run + Vec::kLanes * half;
  if constexpr (F.scales == Scales::sub32_min) {
    s.scale = Vec::mul(s.d, Vec::to_float(Vec::load_u8(at)));
    s.min = Vec::sub(Vec::zero(), Vec::mul(s.dmin, Vec::to_float(Vec::load_u8(at + 16))));
  }
  if constexpr (F.scales == Scales::sub16)
    for (int h = 0; h < 2; ++h) s.sub[h] = Vec::load_i8(at + 16 * h);
  if constexpr (F.scales == Scales::sub16_min)
    for (int h = 0; h < 2; ++h) {
      s.sub[h] = Vec::load_u8(at + 16 * h);
      s.mins[h] = Vec::load_u8(at + 32 + 16 * h);
    }
}

template <BlockFormat F> constexpr bool kHalfRuns = F.scales == Scales::sub16 || F.scales == Scales::sub16_min;

/// sum of (code - offset) * q over codes 4 * first … 4 * (first + n) - 1, exactly.
template <BlockFormat F, int n> inline Int dot_codes(const Int* u, const int8_t* q, int32_t q_sum) {
  constexpr bool kSigned = kWide<F> && !Vec::kDotTakesAllCodes; // subtracts the offset by itself
  Int sum = kSigned || kOffset<F> == 0 ? Vec::zero_int() : Vec::ints(-kOffset<F> * q_sum);
#pragma GCC unroll 8
  for (int j = 0; j < n; ++j) {
    if constexpr (kSigned)
      sum = Vec::dot_wide(sum, u[j], Vec::four(q + 4 * j));
    else
      sum = Vec::dot(sum, u[j], Vec::four(q + 4 * j));
  }
  return sum;
}

template <int kRows> inline void store_outputs(const Float* acc, float* out, int64_t out_stride, int lanes) {
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    if (lanes >= Vec::kLanes) {
      Vec::store(out + m * out_stride, acc[m]);
    } else {
      alignas(64) float all[Vec::kLanes];
      Vec::store(all, acc[m]);
      for (int i = 0; i < lanes; ++i) out[m * out_stride + i] = all[i];
    }
  }
}

/// kRows rows of x, from row m0 on, times one half of a tile. The codes are expanded once for all of them.
template <BlockFormat F, int kRows>
inline void q8_rows(float* out, int lanes, const uint8_t* tile, int half, const TileJob& job, int64_t m0) {
  const int64_t runs = job.cols / kRun;
  const int64_t first = job.quantised->element(m0, 0, runs);
  const int8_t* q = job.quantised->q.data() + first * kRun;
  const float* scale = job.quantised->scale.data() + first;
  const int32_t* q_sum = job.quantised->sum.data() + first * 2;
  Float acc[kRows];
#pragma GCC unroll 16
  for (auto& a : acc) a = Vec::zero();
  RunScales<F> s{};
  Int u[8];
  const int64_t group = job.quantised->group;
  for (int64_t r = 0; r < runs; ++r, q += group * kRun, scale += group, q_sum += 2 * group) {
    if (r % F.runs_per_scale() == 0) {
      load_group(s, tile, half);
      tile += scale_bytes(F);
    }
    load_run(s, tile, half);
    expand_codes<F>(u, tile + sub_bytes(F), half);
    tile += sub_bytes(F) + code_bytes(F);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const int8_t* qm = q + m * kRun;
      const float dx = scale[m];
      const int32_t s0 = q_sum[2 * m], s1 = q_sum[2 * m + 1];
      if constexpr (kHalfRuns<F>) {
        const Int low = dot_codes<F, 4>(u, qm, s0), high = dot_codes<F, 4>(u + 4, qm + 16, s1);
        const Int sum = Vec::add_int(Vec::mul_int(low, s.sub[0]), Vec::mul_int(high, s.sub[1]));
        acc[m] = Vec::fma(Vec::to_float(sum), Vec::mul(s.d, Vec::floats(dx)), acc[m]);
        if constexpr (F.has_min()) {
          const Int mins = Vec::add_int(Vec::mul_int(s.mins[0], Vec::ints(s0)), Vec::mul_int(s.mins[1], Vec::ints(s1)));
          acc[m] = Vec::fma(Vec::to_float(mins), Vec::mul(s.dmin, Vec::floats(-dx)), acc[m]);
        }
      } else {
        const Int sum = dot_codes<F, 8>(u, qm, s0 + s1);
        acc[m] = Vec::fma(Vec::to_float(sum), Vec::mul(s.scale, Vec::floats(dx)), acc[m]);
        if constexpr (F.has_min()) acc[m] = Vec::fma(s.min, Vec::floats(dx * float(s0 + s1)), acc[m]);
      }
    }
  }
  store_outputs<kRows>(acc, out, job.out_stride, lanes);
}

/// The values of one run, [32][lanes], with the operations of dequantize().
template <BlockFormat F> inline void expand_values(Float* w, const RunScales<F>& s, const uint8_t* codes, int half) {
  Int u[8];
  expand_codes<F>(u, codes, half);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Int code = Vec::sub_int(Vec::byte_of(u[j], i), Vec::ints(kOffset<F>));
      Float value;
      if constexpr (kHalfRuns<F>)
        value = Vec::mul(Vec::mul(s.d, Vec::to_float(s.sub[j / 4])), Vec::to_float(code));
      else
        value = Vec::mul(s.scale, Vec::to_float(code));
      if constexpr (F.scales == Scales::sub16_min)
        value = Vec::sub(value, Vec::mul(s.dmin, Vec::to_float(s.mins[j / 4])));
      else if constexpr (F.has_min())
        value = Vec::add(value, s.min);
      w[4 * j + i] = value;
    }
}

/// acc += w[k] * x[row, k] for n values of k, in ascending order.
template <int kRows>
inline void multiply_values(Float* acc, const Float* w, int n, const float* x, const ActivationRows::Floats& floats) {
  for (int k = 0; k < n; ++k, x += floats.k_stride)
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) acc[m] = Vec::fma(w[k], Vec::floats(x[m * floats.row_stride]), acc[m]);
}

inline const float* row_of(const ActivationRows::Floats& floats, int64_t m) {
  return floats.x + m / kRowGroup * floats.group_stride + m % kRowGroup * floats.row_stride;
}

template <BlockFormat F, int kRows>
inline void f32_rows(float* out, int lanes, const uint8_t* tile, int half, const TileJob& job, int64_t m0) {
  const float* x = row_of(*job.floats, m0);
  Float acc[kRows];
#pragma GCC unroll 16
  for (auto& a : acc) a = Vec::zero();
  RunScales<F> s{};
  Float w[kRun];
  for (int64_t r = 0; r < job.cols / kRun; ++r, x += kRun * job.floats->k_stride) {
    if (r % F.runs_per_scale() == 0) {
      load_group(s, tile, half);
      tile += scale_bytes(F);
    }
    load_run(s, tile, half);
    expand_values<F>(w, s, tile + sub_bytes(F), half);
    tile += sub_bytes(F) + code_bytes(F);
    multiply_values<kRows>(acc, w, kRun, x, *job.floats);
  }
  store_outputs<kRows>(acc, out, job.out_stride, lanes);
}

/// Matrices of F32, F16 and BF16.
template <DType type, int kRows>
inline void number_rows(float* out, int lanes, const uint8_t* tile, int half, const TileJob& job, int64_t m0) {
  constexpr int kBytes = type == DType::f32 ? 4 : 2;
  const float* x = row_of(*job.floats, m0);
  tile += half * Vec::kLanes * kBytes;
  Float acc[kRows];
#pragma GCC unroll 16
  for (auto& a : acc) a = Vec::zero();
  for (int64_t k = 0; k < job.cols; ++k, tile += kTileRows * kBytes, x += job.floats->k_stride) {
    Float w;
    if constexpr (type == DType::f32) w = Vec::load_f32(tile);
    if constexpr (type == DType::f16) w = Vec::load_f16(tile);
    if constexpr (type == DType::bf16) w = Vec::load_bf16(tile);
    multiply_values<kRows>(acc, &w, 1, x, *job.floats);
  }
  store_outputs<kRows>(acc, out, job.out_stride, lanes);
}

/// All tiles of a job times all rows of x: kManyRows, four or one at a time. `Rows<n>` is one of the functions above.
template <template <int> class Rows> inline void for_tiles(const TileJob& job) {
  for (int t = 0; t < job.n_tiles; ++t) {
    const uint8_t* tile = job.tiles + size_t(t) * job.tile_bytes;
    for (int half = 0; half < kHalves; ++half) {
      const int64_t col = t * kTileRows + half * Vec::kLanes;
      const int lanes = int(std::min<int64_t>(Vec::kLanes, job.out_cols - col));
      if (lanes <= 0) continue;
      int64_t m = 0;
      const auto out = [&] { return job.out + m * job.out_stride + col; };
      for (; m + Vec::kManyRows <= job.rows; m += Vec::kManyRows) Rows<Vec::kManyRows>::run(out(), lanes, tile, half, job, m);
      for (; m + 4 <= job.rows; m += 4) Rows<4>::run(out(), lanes, tile, half, job, m);
      for (; m < job.rows; ++m) Rows<1>::run(out(), lanes, tile, half, job, m);
    }
  }
}

template <BlockFormat F> struct Q8 {
  template <int n> struct Rows {
    static void run(auto&&... args) { q8_rows<F, n>(args...); }
  };
};
template <BlockFormat F> struct F32 {
  template <int n> struct Rows {
    static void run(auto&&... args) { f32_rows<F, n>(args...); }
  };
};
template <DType type> struct Numbers {
  template <int n> struct Rows {
    static void run(auto&&... args) { number_rows<type, n>(args...); }
  };
};

void q8_tiles(const TileJob& job) {
  switch (job.type) {
  case DType::q4_0: return for_tiles<Q8<block_format(DType::q4_0)>::Rows>(job);
  case DType::q4_1: return for_tiles<Q8<block_format(DType::q4_1)>::Rows>(job);
  case DType::q5_0: return for_tiles<Q8<block_format(DType::q5_0)>::Rows>(job);
  case DType::q5_1: return for_tiles<Q8<block_format(DType::q5_1)>::Rows>(job);
  case DType::q8_0: return for_tiles<Q8<block_format(DType::q8_0)>::Rows>(job);
  case DType::iq4_nl: return for_tiles<Q8<block_format(DType::iq4_nl)>::Rows>(job);
  case DType::iq4_xs: return for_tiles<Q8<block_format(DType::iq4_xs)>::Rows>(job);
  case DType::q2_k: return for_tiles<Q8<block_format(DType::q2_k)>::Rows>(job);
  case DType::q3_k: return for_tiles<Q8<block_format(DType::q3_k)>::Rows>(job);
  case DType::q4_k: return for_tiles<Q8<block_format(DType::q4_k)>::Rows>(job);
  case DType::q5_k: return for_tiles<Q8<block_format(DType::q5_k)>::Rows>(job);
  case DType::q6_k: return for_tiles<Q8<block_format(DType::q6_k)>::Rows>(job);
  case DType::f32: case DType::f16: case DType::bf16: assert(false && "has no codes"); return;
  }
}

void f32_tiles(const TileJob& job) {
  switch (job.type) {
  case DType::f32: return for_tiles<Numbers<DType::f32>::Rows>(job);
  case DType::f16: return for_tiles<Numbers<DType::f16>::Rows>(job);
  case DType::bf16: return for_tiles<Numbers<DType::bf16>::Rows>(job);
  case DType::q4_0: return for_tiles<F32<block_format(DType::q4_0)>::Rows>(job);
  case DType::q4_1: return for_tiles<F32<block_format(DType::q4_1)>::Rows>(job);
  case DType::q5_0: return for_tiles<F32<block_format(DType::q5_0)>::Rows>(job);
  case DType::q5_1: return for_tiles<F32<block_format(DType::q5_1)>::Rows>(job);
  case DType::q8_0: return for_tiles<F32<block_format(DType::q8_0)>::Rows>(job);
  case DType::iq4_nl: return for_tiles<F32<block_format(DType::iq4_nl)>::Rows>(job);
  case DType::iq4_xs: return for_tiles<F32<block_format(DType::iq4_xs)>::Rows>(job);
  case DType::q2_k: return for_tiles<F32<block_format(DType::q2_k)>::Rows>(job);
  case DType::q3_k: return for_tiles<F32<block_format(DType::q3_k)>::Rows>(job);
  case DType::q4_k: return for_tiles<F32<block_format(DType::q4_k)>::Rows>(job);
  case DType::q5_k: return for_tiles<F32<block_format(DType::q5_k)>::Rows>(job);
  case DType::q6_k: return for_tiles<F32<block_format(DType::q6_k)>::Rows>(job);
  }
}

/// The largest magnitude of a run, and 0, or NaN if one of its numbers is not finite.
struct RunRange {
  float amax = 0, poison = 0;
};
inline RunRange range_of(const float* x) {
  Float amax = Vec::zero(), poison = Vec::zero();
#pragma GCC unroll 4
  for (int i = 0; i < kRun; i += Vec::kLanes) {
    const Float value = Vec::load_f32(x + i);
    amax = Vec::max(amax, Vec::abs(value));
    poison = Vec::fma(value, Vec::zero(), poison);
  }
  alignas(64) float amaxes[Vec::kLanes], poisons[Vec::kLanes];
  Vec::store(amaxes, amax);
  Vec::store(poisons, poison);
  RunRange range;
#pragma GCC unroll 16
  for (int i = 0; i < Vec::kLanes; ++i) {
    range.amax = range.amax < amaxes[i] ? amaxes[i] : range.amax;
    range.poison += poisons[i];
  }
  return range;
}

// 127 / amax and the product are rounded as floats, then to the nearest even integer: the same on every path.
// A number that is not finite makes its scale NaN, so that it is not rounded away.
void quantise_row(ActivationRows::Quantised& out, const float* x, int64_t row, int64_t cols) {
  const int64_t runs = cols / kRun;
  for (int64_t r = 0; r < runs; ++r, x += kRun) {
    const auto [amax, poison] = range_of(x);
    const float ratio = 127.0f / amax;
    const bool usable = poison == 0 && ratio <= std::numeric_limits<float>::max();
    const int64_t at = out.element(row, r, runs);
    out.scale[size_t(at)] = amax / 127.0f + poison;
    int8_t* q = out.q.data() + at * kRun;
    alignas(64) int32_t value[kRun] = {};
    for (int i = 0; usable && i < kRun; i += Vec::kLanes)
      Vec::store_rounded(value + i, Vec::mul(Vec::load_f32(x + i), Vec::floats(ratio)));
    for (int i = 0; i < kRun; ++i) q[i] = int8_t(value[i]);
    for (int h = 0; h < 2; ++h) {
      int32_t total = 0;
      for (int i = 16 * h; i < 16 * h + 16; ++i) total += value[i];
      out.sum[size_t(2 * at + h)] = total;
    }
  }
}
