#pragma once

#include "kernels/isa.hpp"

#include <cstdint>

namespace millrace {

/// out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)). All [n]; out may be gate or up.
void silu_multiply(float* out, const float* gate, const float* up, int64_t n, Isa isa);

/// x[i] += y[i]. Both [n].
void add(float* x, const float* y, int64_t n);

} // namespace millrace
