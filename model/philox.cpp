#include "model/philox.hpp"

namespace millrace {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85; // golden ratio, sqrt(3) - 1
constexpr int kRounds = 10;

} // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

double philox_uniform(uint64_t seed, uint64_t index, uint32_t choice, DrawPurpose purpose) {
  const auto words = philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), choice,
                                 static_cast<uint32_t>(purpose)},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = uint64_t{words[0]} << 21 | words[1] >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

} // namespace millrace
