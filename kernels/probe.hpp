#pragma once

// What the machine can do at most, measured: the roof next to which every figure of `millrace bench` stands.
// Each probe takes about a second and returns the median of several runs on all threads of the pool.

#include "kernels/isa.hpp"
#include "kernels/thread_pool.hpp"

#include <cstddef>

namespace millrace {

/// Bytes per second that the threads read together from an array of `bytes`, touched before; take it larger
/// than the caches.
double probe_read_bandwidth(ThreadPool& pool, size_t bytes, Isa isa);

/// Operations per second (a multiplication and an addition are two) of the path's dot product of 8-bit
/// integers, from registers: vpdpbusd for avx512vnni, vpmaddubsw + vpmaddwd + vpaddd for avx512 and avx2.
double probe_int8_rate(ThreadPool& pool, Isa isa);

/// Likewise of float multiply-adds: fused for the vector paths.
double probe_f32_rate(ThreadPool& pool, Isa isa);

} // namespace millrace
