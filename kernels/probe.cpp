#include "kernels/probe.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>
#include <memory>
#include <new>
#include <vector>

namespace millrace {
namespace {

constexpr int kRuns = 7;
constexpr int64_t kIterations = 4'000'000;

// The loops below keep 8 to 12 independent sums, which hides a latency of 4 to 5 cycles at two issues a cycle
// and leaves registers for the operands. No two sums have the same operands, or the compiler would compute
// them once.

/// What a probe computes must be used, or it is not computed.
void keep(int64_t value) {
  asm volatile("" : : "r"(value));
}

// --- scalar ---

int64_t read_scalar(const std::byte* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64)
    for (size_t k = 0; k < 8; ++k) {
      uint64_t word;
      std::memcpy(&word, data + i + 8 * k, 8);
      sums[k] += word;
    }
  uint64_t sum = 0;
  for (const uint64_t s : sums)
    sum += s;
  return int64_t(sum);
}

// Small enough to stay in the first cache; as plain as the reference kernels.
constexpr int kScalarWidth = 256;

double int8_scalar(int64_t iterations, int8_t seed) {
  int8_t a[kScalarWidth], b[kScalarWidth];
  std::memset(a, seed, sizeof a);
  std::memset(b, seed + 1, sizeof b);
  int32_t sum = 0;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int k = 0; k < kScalarWidth; ++k)
      sum += int32_t{a[k]} * int32_t{b[k]};
    a[i % kScalarWidth] ^= 1;
  }
  keep(sum);
  return 2.0 * kScalarWidth * double(iterations);
}

double f32_scalar(int64_t iterations, float seed) {
  float a[kScalarWidth], b[kScalarWidth];
  std::fill(a, a + kScalarWidth, seed);
  std::fill(b, b + kScalarWidth, seed + 1);
  float sum = 0;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int k = 0; k < kScalarWidth; ++k)
      sum += a[k] * b[k];
    a[i % kScalarWidth] += 1;
  }
  keep(int64_t(sum));
  return 2.0 * kScalarWidth * double(iterations);
}

// --- AVX2 ---
#pragma GCC push_options
#pragma GCC target("avx2,fma")

int64_t read_avx2(const std::byte* data, size_t bytes) {
  __m256i sums[8] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256)
    for (size_t k = 0; k < 8; ++k)
      sums[k] =
          _mm256_add_epi64(sums[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * k)));
  for (size_t k = 1; k < 8; ++k)
    sums[0] = _mm256_add_epi64(sums[0], sums[k]);
  return _mm256_extract_epi64(sums[0], 0) + _mm256_extract_epi64(sums[0], 1) +
         _mm256_extract_epi64(sums[0], 2) + _mm256_extract_epi64(sums[0], 3);
}

double int8_avx2(int64_t iterations, int8_t seed) {
  __m256i sums[8] = {}, a[2], b[4];
  for (int k = 0; k < 2; ++k)
    a[k] = _mm256_set1_epi8(int8_t(seed + k));
  for (int k = 0; k < 4; ++k)
    b[k] = _mm256_set1_epi8(int8_t(seed + 4 + k));
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < iterations; ++i) {
    for (auto& operand : a)
      asm volatile("" : "+x"(operand)); // else the products are computed once for all
    for (int k = 0; k < 8; ++k)
      sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a[k % 2], b[k / 2]), ones));
  }
  for (int k = 1; k < 8; ++k)
    sums[0] = _mm256_add_epi32(sums[0], sums[k]);
  keep(_mm256_extract_epi32(sums[0], 0));
  return 2.0 * 32 * 8 * double(iterations);
}

double f32_avx2(int64_t iterations, float seed) {
  __m256 sums[10] = {}, a[2], b[5];
  for (int k = 0; k < 2; ++k)
    a[k] = _mm256_set1_ps(seed * float(k + 1));
  for (int k = 0; k < 5; ++k)
    b[k] = _mm256_set1_ps(seed * float(k + 5));
  for (int64_t i = 0; i < iterations; ++i)
    for (int k = 0; k < 10; ++k)
      sums[k] = _mm256_fmadd_ps(a[k % 2], b[k / 2], sums[k]);
  for (int k = 1; k < 10; ++k)
    sums[0] = _mm256_add_ps(sums[0], sums[k]);
  keep(int64_t(_mm256_cvtss_f32(sums[0])));
  return 2.0 * 8 * 10 * double(iterations);
}

#pragma GCC pop_options

// --- AVX-512 ---
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

int64_t read_avx512(const std::byte* data, size_t bytes) {
  __m512i sums[8] = {};
  for (size_t i = 0; i + 512 <= bytes; i += 512)
    for (size_t k = 0; k < 8; ++k)
      sums[k] = _mm512_add_epi64(sums[k], _mm512_load_si512(data + i + 64 * k));
  for (size_t k = 1; k < 8; ++k)
    sums[0] = _mm512_add_epi64(sums[0], sums[k]);
  alignas(64) int64_t lanes[8];
  _mm512_store_si512(lanes, sums[0]);
  int64_t sum = 0;
  for (const int64_t lane : lanes)
    sum += lane;
  return sum;
}

double int8_avx512(int64_t iterations, int8_t seed) {
  __m512i sums[12] = {}, a[3], b[4];
  for (int k = 0; k < 3; ++k)
    a[k] = _mm512_set1_epi8(int8_t(seed + k));
  for (int k = 0; k < 4; ++k)
    b[k] = _mm512_set1_epi8(int8_t(seed + 4 + k));
  const __m512i ones = _mm512_set1_epi16(1);
  for (int64_t i = 0; i < iterations; ++i) {
    for (auto& operand : a)
      asm volatile("" : "+v"(operand)); // else the products are computed once for all
    for (int k = 0; k < 12; ++k)
      sums[k] = _mm512_add_epi32(sums[k], _mm512_madd_epi16(_mm512_maddubs_epi16(a[k % 3], b[k / 3]), ones));
  }
  for (int k = 1; k < 12; ++k)
    sums[0] = _mm512_add_epi32(sums[0], sums[k]);
  keep(_mm512_cvtsi512_si32(sums[0]));
  return 2.0 * 64 * 12 * double(iterations);
}

double f32_avx512(int64_t iterations, float seed) {
  __m512 sums[12] = {}, a[3], b[4];
  for (int k = 0; k < 3; ++k)
    a[k] = _mm512_set1_ps(seed * float(k + 1));
  for (int k = 0; k < 4; ++k)
    b[k] = _mm512_set1_ps(seed * float(k + 5));
  for (int64_t i = 0; i < iterations; ++i)
    for (int k = 0; k < 12; ++k)
      sums[k] = _mm512_fmadd_ps(a[k % 3], b[k / 3], sums[k]);
  for (int k = 1; k < 12; ++k)
    sums[0] = _mm512_add_ps(sums[0], sums[k]);
  keep(int64_t(_mm512_cvtss_f32(sums[0])));
  return 2.0 * 16 * 12 * double(iterations);
}

#pragma GCC pop_options

// --- AVX-512 VNNI ---
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")

double int8_avx512vnni(int64_t iterations, int8_t seed) {
  __m512i sums[12] = {}, a[3], b[4];
  for (int k = 0; k < 3; ++k)
    a[k] = _mm512_set1_epi8(int8_t(seed + k));
  for (int k = 0; k < 4; ++k)
    b[k] = _mm512_set1_epi8(int8_t(seed + 4 + k));
  for (int64_t i = 0; i < iterations; ++i)
    for (int k = 0; k < 12; ++k)
      sums[k] = _mm512_dpbusd_epi32(sums[k], a[k % 3], b[k / 3]);
  for (int k = 1; k < 12; ++k)
    sums[0] = _mm512_add_epi32(sums[0], sums[k]);
  keep(_mm512_cvtsi512_si32(sums[0]));
  return 2.0 * 64 * 12 * double(iterations);
}

#pragma GCC pop_options

// --- choice and timing ---

int64_t read_all(const std::byte* data, size_t bytes, Isa isa) {
  switch (isa) {
  case Isa::scalar: return read_scalar(data, bytes);
  case Isa::avx2: return read_avx2(data, bytes);
  case Isa::avx512:
  case Isa::avx512vnni: return read_avx512(data, bytes);
  }
  return 0;
}

/// Runs the path's loop; how many operations it did.
double int8_loop(Isa isa, int64_t iterations, int8_t seed) {
  switch (isa) {
  case Isa::scalar: return int8_scalar(iterations / 16, seed);
  case Isa::avx2: return int8_avx2(iterations, seed);
  case Isa::avx512: return int8_avx512(iterations, seed);
  case Isa::avx512vnni: return int8_avx512vnni(iterations, seed);
  }
  return 0;
}

double f32_loop(Isa isa, int64_t iterations, float seed) {
  switch (isa) {
  case Isa::scalar: return f32_scalar(iterations / 16, seed);
  case Isa::avx2: return f32_avx2(iterations, seed);
  case Isa::avx512:
  case Isa::avx512vnni: return f32_avx512(iterations, seed);
  }
  return 0;
}

/// Median over runs of work / seconds; work() does it on all threads and says how much it was.
template <class Work> double median_rate(Work work) {
  work(); // caches, clocks and threads warm up
  std::vector<double> rates;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const double amount = work();
    rates.push_back(amount / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(rates.begin(), rates.begin() + kRuns / 2, rates.end());
  return rates[kRuns / 2];
}

/// The sum over the threads of what loop(thread) returns.
template <class Loop> double on_all_threads(ThreadPool& pool, Loop loop) {
  std::vector<double> amounts(size_t(pool.size()));
  pool.run(pool.size(), [&](int i, int) { amounts[size_t(i)] = loop(i); });
  double sum = 0;
  for (const double amount : amounts)
    sum += amount;
  return sum;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

} // namespace

double probe_read_bandwidth(ThreadPool& pool, size_t bytes, Isa isa) {
  constexpr size_t kSlice = 1 << 20; // a thread that is held up takes fewer of them
  const size_t slices = std::max<size_t>(bytes / kSlice, 1);
  const std::unique_ptr<void, Free> memory(std::aligned_alloc(4096, slices * kSlice));
  if (!memory)
    throw std::bad_alloc();
  auto* data = static_cast<std::byte*>(memory.get());
  pool.run(int(slices), [&](int i, int) { std::memset(data + size_t(i) * kSlice, i, kSlice); });

  return median_rate([&] {
    pool.run(int(slices), [&](int i, int) { keep(read_all(data + size_t(i) * kSlice, kSlice, isa)); });
    return double(slices * kSlice);
  });
}

double probe_int8_rate(ThreadPool& pool, Isa isa) {
  return median_rate([&] {
    return on_all_threads(pool, [&](int i) { return int8_loop(isa, kIterations, int8_t(i % 4 + 1)); });
  });
}

double probe_f32_rate(ThreadPool& pool, Isa isa) {
  return median_rate([&] {
    return on_all_threads(pool, [&](int i) { return f32_loop(isa, kIterations, float(i % 4 + 1) * 1e-9f); });
  });
}

} // namespace millrace
