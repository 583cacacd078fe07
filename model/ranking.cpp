#include "model/ranking.hpp"

#include <algorithm>
#include <cmath>

namespace millrace {

void Ranking::rank(std::span<const float> logits, float max, float temperature) {
  constexpr size_t kBlock = 256;
  logits_ = logits;
  max_ = max;
  inverse_temperature_ = 1.0 / temperature;
  buckets_.fill({});
  sorted_bucket_ = -1;
  std::array<double, kBlock> weights;
  std::array<int32_t, kBlock> buckets;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < size; ++i)
      weights[i] = weight_of(logits[begin + i]);
    for (size_t i = 0; i < size; ++i)
      buckets[i] = bucket_of(max - logits[begin + i]);
    for (size_t i = 0; i < size; ++i) {
      buckets_[buckets[i]].count += weights[i] > 0;
      buckets_[buckets[i]].mass += weights[i];
    }
  }
  last_bucket_ = kBuckets - 1;
  last_count_ = buckets_[last_bucket_].count;
}

std::span<const Ranking::Entry> Ranking::sorted(int32_t bucket) {
  if (bucket == sorted_bucket_)
    return sorted_;
  constexpr size_t kBlock =
      64; // most blocks hold nothing of the bucket, and are passed without branches inside
  const auto max = static_cast<float>(max_);
  const auto take = [&](size_t i) {
    const double weight = weight_of(logits_[i]);
    if (bucket_of(max - logits_[i]) == bucket && weight > 0)
      sorted_.push_back({logits_[i], static_cast<TokenId>(i), weight});
  };
  sorted_.clear();
  size_t i = 0;
  for (; i + kBlock <= logits_.size(); i += kBlock) {
    int found = 0;
    for (size_t j = 0; j < kBlock; ++j)
      found |= bucket_of(max - logits_[i + j]) == bucket;
    if (found)
      for (size_t j = 0; j < kBlock; ++j)
        take(i + j);
  }
  for (; i < logits_.size(); ++i)
    take(i);
  std::sort(sorted_.begin(), sorted_.end(), [](const Entry& a, const Entry& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  sorted_bucket_ = bucket;
  return sorted_;
}

std::span<const Ranking::Entry> Ranking::kept_of(int32_t bucket) {
  return bucket < last_bucket_ ? sorted(bucket) : sorted(bucket).first(last_count_);
}

void Ranking::keep_count(int32_t k) {
  size_t before = 0;
  for (int32_t b = 0; b <= last_bucket_; before += buckets_[b++].count) {
    if (before + buckets_[b].count < static_cast<size_t>(k))
      continue;
    const auto entries = kept_of(b);
    size_t count = k - before;
    while (count < entries.size() && entries[count].logit == entries[count - 1].logit)
      ++count;
    last_bucket_ = b;
    last_count_ = std::min(count, entries.size());
    return;
  }
}

double Ranking::kept_mass() {
  double mass = 0;
  for (int32_t b = 0; b < last_bucket_; ++b)
    mass += buckets_[b].mass;
  if (last_count_ == buckets_[last_bucket_].count)
    return mass + buckets_[last_bucket_].mass;
  for (const Entry& entry : kept_of(last_bucket_))
    mass += entry.weight;
  return mass;
}

void Ranking::keep_mass(float share) {
  // A float may stand a little above the decimal number that was meant: half a unit in its last place is
  // forgiven, so that 0.1 of ten equal tokens is one of them and not two.
  const double target = static_cast<double>(share) * (1 - 0x1p-24) * kept_mass();
  double mass = 0;
  for (int32_t b = 0; b <= last_bucket_; mass += buckets_[b++].mass) {
    if (mass + buckets_[b].mass < target)
      continue;
    size_t count = 0;
    for (const Entry& entry : kept_of(b)) {
      mass += entry.weight;
      ++count;
      if (mass >= target)
        break;
    }
    last_bucket_ = b;
    last_count_ = count;
    return;
  }
}

void Ranking::keep_share_of_max(float share) {
  // Weights fall with distance, so all buckets well before the distance of this share are kept; where the
  // border really is, the weights themselves say.
  const double distance = -std::log(static_cast<double>(share)) / inverse_temperature_;
  for (int32_t b = bucket_of(static_cast<float>(distance * (1 - 1e-6))); b <= last_bucket_; ++b) {
    const auto entries = kept_of(b);
    const auto border = std::partition_point(entries.begin(), entries.end(), [&](const Entry& entry) {
      return entry.weight >= static_cast<double>(share);
    });
    if (border == entries.end())
      continue;
    last_bucket_ = b;
    last_count_ = static_cast<size_t>(border - entries.begin());
    return;
  }
}

TokenId Ranking::pick(double uniform) {
  const double target = uniform * kept_mass();
  double mass = 0;
  int32_t last = 0; // the last bucket with a kept entry
  for (int32_t b = 0; b <= last_bucket_; ++b) {
    if (buckets_[b].count == 0 || (b == last_bucket_ && last_count_ == 0))
      continue;
    last = b;
    if (b < last_bucket_ && mass + buckets_[b].mass <= target) {
      mass += buckets_[b].mass;
      continue;
    }
    for (const Entry& entry : kept_of(b)) {
      mass += entry.weight;
      if (mass > target)
        return entry.id;
    }
  }
  // Sums are rounded in another order here than in kept_mass(): a target at the very end may be missed.
  return kept_of(last).back().id;
}

std::vector<Candidate> Ranking::kept() {
  std::vector<Candidate> candidates;
  const double mass = kept_mass();
  for (int32_t b = 0; b <= last_bucket_; ++b) {
    if (buckets_[b].count == 0)
      continue;
    for (const Entry& entry : kept_of(b))
      candidates.push_back({entry.id, static_cast<float>(entry.weight / mass)});
  }
  return candidates;
}

} // namespace millrace
