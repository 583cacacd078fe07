#pragma once

// Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A
// random number is a pure function of a key and a counter, so there is no generator to copy when a sequence
// moves to another owner.

#include <array>
#include <cstdint>

namespace millrace {

/// Ten rounds over a 128-bit counter with a 64-bit key; least significant word first.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What a number is drawn for: distinct purposes at the same position are independent.
enum class DrawPurpose : uint32_t { token = 0 };

/// A number in [0, 1): key = seed (low word, high word), counter = (index low, index high, choice, purpose);
/// the first 53 bits of the output, word 0 shifted left by 21 plus the upper 21 bits of word 1, times 2^-53.
double philox_uniform(uint64_t seed, uint64_t index, uint32_t choice, DrawPurpose purpose);

} // namespace millrace
