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

void Device::forward(std::span<const Row> rows, std::span<float> logits) {
  assert(valid(rows, logits, config(), context_length()));
  if (rows.empty())
    return;

  std::unique_lock lock{mutex_};
  const uint64_t ticket = next_ticket_++;
  turn_.wait(lock, [&] { return serving_ == ticket; });
  lock.unlock();

  // The next in line is served even if this pass throws.
  struct Turn {
    Device& device;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    int64_t rows;

    ~Turn() {
      const auto end = std::chrono::steady_clock::now();
      {
        std::lock_guard lock{device.mutex_};
        device.counters_.busy_seconds += std::chrono::duration<double>(end - begin).count();
        device.counters_.last_pass = end;
        device.counters_.passes += 1;
        device.counters_.rows += rows;
        ++device.serving_;
      }
      device.turn_.notify_all();
    }
  } turn{.device = *this, .rows = int64_t(rows.size())};
  run_pass(rows, logits);
}

Device::Counters Device::counters() const {
  std::lock_guard lock{mutex_};
  return counters_;
}

} // namespace millrace
