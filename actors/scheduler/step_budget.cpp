#include "actors/scheduler/step_budget.hpp"

#include <algorithm>

namespace millrace {
namespace {

/// What a pass counts once another has been noted: attention makes passes slower as a prompt goes on, so the latest ones tell most.
constexpr double kMemory = 0.8;

} // namespace

void PassFit::note(double rows, double seconds) {
  for (double* sum : {&weight_, &rows_, &seconds_, &rows2_, &product_})
    *sum *= kMemory;
  weight_ += 1;
  rows_ += rows;
  seconds_ += seconds;
  rows2_ += rows * rows;
  product_ += rows * seconds;
}

double PassFit::rows_within(double seconds) const {
  const double rows = rows_ / weight_, mean = seconds_ / weight_;
  const double variance = rows2_ / weight_ - rows * rows;
  const double slope = (product_ / weight_ - rows * mean) / std::max(variance, 1e-12);
  // Passes of one size tell no slope, and noise may tell a wrong one: then time is taken to be proportional to rows, which
  // comes to the true size in a few passes from either side.
  const double proportional = std::max(mean, 1e-12) / rows;
  if (variance < 1 || slope < proportional / 8 || slope > proportional)
    return seconds / proportional;
  return (seconds - (mean - slope * rows)) / slope;
}

int32_t StepBudget::prefill_rows() const {
  std::lock_guard lock{mutex_};
  const int32_t least = std::min(kLeast, chunk_);
  if (decoding_ == 0)
    return chunk_;
  if (step_seconds_ == 0 || !fit_.known())
    return std::max(least, chunk_ / 4);
  return int32_t(std::clamp(fit_.rows_within(stretch_ * step_seconds_), double(least), double(chunk_)));
}

void StepBudget::set_decoding(int32_t sequences) {
  std::lock_guard lock{mutex_};
  decoding_ = sequences;
}

void StepBudget::note_prefill(int32_t rows, int32_t logits_rows, double seconds) {
  std::lock_guard lock{mutex_};
  fit_.note(rows, seconds);
  ++totals_.prefill_passes;
  totals_.prefill_rows += rows;
  totals_.prefill_seconds += seconds;
  totals_.prefill_operations += rows * cost_.row_operations + logits_rows * cost_.logits_operations;
}

void StepBudget::note_decode(int32_t rows, int64_t visible, double seconds) {
  std::lock_guard lock{mutex_};
  step_seconds_ = step_seconds_ == 0 ? seconds : kMemory * step_seconds_ + (1 - kMemory) * seconds;
  ++totals_.decode_passes;
  totals_.decode_rows += rows;
  totals_.decode_seconds += seconds;
  totals_.decode_bytes += cost_.weight_bytes + double(visible) * cost_.position_bytes;
}

void StepBudget::note_loop(double seconds) {
  std::lock_guard lock{mutex_};
  totals_.loop_seconds += seconds;
}

void StepBudget::note_freed(int64_t passes) {
  std::lock_guard lock{mutex_};
  auto& counts = totals_.freed_after;
  ++counts[size_t(std::clamp<int64_t>(passes, 0, int64_t(counts.size()) - 1))];
}

StepBudget::Totals StepBudget::totals() const {
  std::lock_guard lock{mutex_};
  return totals_;
}

} // namespace millrace
