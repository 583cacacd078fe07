#pragma once

#include "model/device.hpp"

#include <array>
#include <cstdint>
#include <mutex>

namespace millrace {

/// The seconds of a pass as a line over its rows, by least squares; older passes count less and less.
class PassFit {
public:
  void note(double rows, double seconds);
  bool known() const { return weight_ > 0; }
  /// Rows that take so many seconds; not rounded, perhaps negative. Something is known.
  double rows_within(double seconds) const;

private:
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows2_ = 0, product_ = 0; // sums
};

/// How much prompt the next pass may hold, from how long passes took. While sequences decode, a prefill pass may take
/// `stretch` decode steps at most, so that a gap between two of their tokens, which is a step and a pass over a prompt, stays
/// below 1 + stretch steps. Also the book of passes, by kind. Thread-safe: prefill and decode of a device share it.
class StepBudget {
public:
  /// chunk: rows of a pass where nothing decodes.
  StepBudget(int32_t chunk, double stretch, DeviceCost cost = {}) : chunk_(chunk), stretch_(stretch), cost_(cost) {}

  /// Rows for the next prefill pass: at least kLeast (or the chunk, if that is less), at most the chunk.
  int32_t prefill_rows() const;
  static constexpr int32_t kLeast = 16;

  /// So many sequences are in the running batch from now on.
  void set_decoding(int32_t sequences);
  void note_prefill(int32_t rows, int32_t logits_rows, double seconds);
  /// visible: positions that all rows together see.
  void note_decode(int32_t rows, int64_t visible, double seconds);
  /// Seconds from the end of a decode pass until the tokens for the next could be fed.
  void note_loop(double seconds);
  /// The blocks of a sequence are free so many passes after its end was known.
  void note_freed(int64_t passes);

  struct Totals {
    int64_t prefill_passes = 0, prefill_rows = 0;
    double prefill_seconds = 0;
    int64_t decode_passes = 0, decode_rows = 0;
    double decode_seconds = 0, loop_seconds = 0;
    double decode_bytes = 0, prefill_operations = 0;
    std::array<int64_t, 4> freed_after{}; // by passes; the last counts all from there on
  };
  Totals totals() const;

private:
  const int32_t chunk_;
  const double stretch_;
  const DeviceCost cost_;
  mutable std::mutex mutex_;
  int32_t decoding_ = 0;
  double step_seconds_ = 0; // of a decode pass, lately
  PassFit fit_;             // of prefill passes
  Totals totals_;
};

} // namespace millrace
