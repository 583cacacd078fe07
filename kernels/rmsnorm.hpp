#pragma once

#include "kernels/isa.hpp"

#include <cstdint>

namespace millrace {

/// out[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + eps) * weight
/// x, out: [rows, dim] row-major; weight: [dim]. out may be x.
void rmsnorm(float* out, const float* x, const float* weight, int64_t rows, int64_t dim, float eps, Isa isa);

} // namespace millrace
