#pragma once

#include "messages/ids.hpp"

#include <cstdint>
#include <cstring>
#include <unordered_map>

namespace millrace {

/// Clients choose the ids, so the hash has a key of its own in each process: who does not know it cannot make
/// ids that collide.
struct SecretHash {
  size_t operator()(const StreamId& id) const noexcept {
    const __uint128_t product =
        static_cast<__uint128_t>(word(id, 0) ^ word(kKey, 0)) * (word(id, 8) ^ word(kKey, 8));
    return static_cast<size_t>(product ^ product >> 64);
  }

private:
  static uint64_t word(const StreamId& id, size_t offset) {
    uint64_t word;
    std::memcpy(&word, id.bytes.data() + offset, sizeof word);
    return word;
  }
  static inline const StreamId kKey = random_stream_id();
};

/// By stream id. References stay valid until their entry goes, iterators do not.
template <class T> using StreamTable = std::unordered_map<StreamId, T, SecretHash>;

} // namespace millrace
