#include "model/device.hpp"

#include "kernels/attention.hpp"

#include <cassert>

namespace millrace {
namespace {

/// What every caller promises; the rows come from our own scheduler, so a breach is our bug.
[[maybe_unused]] bool valid(std::span<const Row> rows, std::span<float> logits, const ModelConfig& config,
                            int32_t context_length) {
  size_t wanted = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    wanted += row.wants_logits;
    if (row.token < 0 || row.token >= config.vocab_size || row.position < 0 ||
        row.position >= context_length || row.blocks.size() <= size_t(row.position / kBlockSize))
      return false;
    bool continues = i > 0 && row.blocks.data() == rows[i - 1].blocks.data();
    if (continues && row.position != rows[i - 1].position + 1)
      return false;
  }
  return logits.size() == wanted * size_t(config.vocab_size);
}

} // namespace

Device::Device(int32_t n_blocks, int32_t context_length)
    : blocks_{std::make_shared<BlockManager>(n_blocks)}, context_length_{context_length} {}

/// One's turn, from its beginning to its end: the next in line is served even if this one's work throws.
class Device::Turn {
public:
  /// Waits for it. A pass is counted and its seconds are written at the end; a copy has no rows and is not.
  Turn(Device& device, int64_t rows, double& seconds) : device_{device}, rows_{rows}, seconds_{seconds} {
    std::unique_lock lock{device.mutex_};
    const uint64_t ticket = device.next_ticket_++;
    device.turn_.wait(lock, [&] { return device.serving_ == ticket; });
    begin_ = std::chrono::steady_clock::now();
  }

  ~Turn() {
    const auto end = std::chrono::steady_clock::now();
    seconds_ = std::chrono::duration<double>(end - begin_).count();
    {
      std::lock_guard lock{device_.mutex_};
      if (rows_ > 0) {
        device_.counters_.busy_seconds += seconds_;
        device_.counters_.last_pass = end;
        device_.counters_.passes += 1;
        device_.counters_.rows += rows_;
      }
      ++device_.serving_;
    }
    device_.turn_.notify_all();
  }

  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

private:
  Device& device_;
  int64_t rows_;
  double& seconds_;
  std::chrono::steady_clock::time_point begin_;
};

double Device::forward(std::span<const Row> rows, std::span<float> logits) {
  assert(valid(rows, logits, config(), context_length()));
  double seconds = 0;
  if (!rows.empty()) {
    Turn turn{*this, int64_t(rows.size()), seconds};
    run_pass(rows, logits);
  }
  return seconds;
}

void Device::copy(const BlockCopy& copy) {
  assert(copy.from >= 0 && copy.from < blocks_->total() && copy.to >= 0 && copy.to < blocks_->total() &&
         copy.from != copy.to && copy.positions >= 0 && copy.positions <= kBlockSize);
  if (copy.positions == 0)
    return;
  double seconds = 0;
  Turn turn{*this, 0, seconds};
  copy_block(copy);
}

Device::Counters Device::counters() const {
  std::lock_guard lock{mutex_};
  return counters_;
}

} // namespace millrace
