#pragma once

#include <span>

namespace millrace {

/// A CPU code path. `scalar` is the reference that every other path is tested against.
/// avx512 means F+BW+VL+DQ; avx512vnni adds VNNI (vpdpbusd).
enum class Isa { scalar, avx2, avx512, avx512vnni };

const char* to_string(Isa isa);

/// The paths this machine can run, best first; scalar is always last.
std::span<const Isa> available_isas();

/// The best of them, or the one that the environment variable MILLRACE_ISA names.
/// Throws std::runtime_error that lists the available ones if it names no available path.
Isa active_isa();

} // namespace millrace
