#pragma once

#include "model/softmax.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

using TokenId = int32_t;

/// A probability that survived the cuts.
struct Candidate {
  TokenId id;
  float probability;
};

/// The tokens from the most likely down (equal ones by id), of which the cuts keep a prefix. The vocabulary
/// is never sorted as a whole: one pass counts tokens and mass by distance from the largest logit, in
/// buckets; a cut or a draw then sorts only the bucket that it ends in.
class Ranking {
public:
  /// Weights are exp((logit - max) / temperature); those that vanish in a double are cut at once. The logits
  /// (any may be -inf, none NaN or +inf) must outlive the use of the ranking. temperature > 0.
  void rank(std::span<const float> logits, float max, float temperature);

  /// Keeps the k most likely, and what is as likely as the last of them.
  void keep_count(int32_t k);
  /// Keeps the shortest prefix that holds this share of the mass.
  void keep_mass(float share);
  /// Keeps what is at least this share as likely as the most likely.
  void keep_share_of_max(float share);

  /// The token in which uniform, in [0, 1), falls when the kept mass is laid out in order.
  TokenId pick(double uniform);
  std::vector<Candidate> kept();

private:
  struct Entry {
    float logit;
    TokenId id;
    double weight;
  };
  struct Bucket {
    uint32_t count = 0;
    double mass = 0;
  };
  // Distances from 2^-8 to 2^9 in 64 steps an octave, by the upper bits of the float; the first and the last
  // bucket take the rest.
  static constexpr int kMantissaShift = 17;
  static constexpr int32_t kFirstKey = (127 - 8) << 6, kBuckets = 17 * 64;

  static int32_t bucket_of(float distance) {
    const int32_t key = (std::bit_cast<int32_t>(distance) >> kMantissaShift) - kFirstKey;
    return key < 0 ? 0 : key < kBuckets ? key : kBuckets - 1;
  }
  double weight_of(float logit) const {
    return exp_nonpositive((static_cast<double>(logit) - max_) * inverse_temperature_);
  }
  std::span<const Entry> sorted(int32_t bucket);
  /// The entries of the bucket that are kept.
  std::span<const Entry> kept_of(int32_t bucket);
  double kept_mass();

  std::span<const float> logits_;
  double max_ = 0;
  double inverse_temperature_ = 1;
  std::array<Bucket, kBuckets> buckets_;
  std::vector<Entry> sorted_; // the bucket that was looked at last
  int32_t sorted_bucket_ = -1;
  // Kept are all buckets before last_bucket_ and the first last_count_ entries of that.
  int32_t last_bucket_ = 0;
  size_t last_count_ = 0;
};

} // namespace millrace
