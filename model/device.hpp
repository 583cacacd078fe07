#pragma once

// A device: weights, KV pool and the pass. The one mutable thing that the prefill and the decode actor share.

#include "kernels/matmul.hpp"
#include "model/block_manager.hpp"
#include "model/config.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace millrace {

/// One row of a pass: a token at its position in a sequence. Its key and value are stored in `blocks`.
struct Row {
  TokenId token = 0;
  int32_t position = 0;
  std::span<const BlockId> blocks; // of its sequence; covers position
  bool wants_logits = false;
};

/// What identifies a device's arithmetic: equal keys give equal bits (failover goes only to an equal key).
struct DeviceKey {
  uint64_t weights_hash = 0; // xxHash of the model file
  std::string kernel_path;   // "avx512vnni"
  std::string activations;   // "q8", "f32"
  bool operator==(const DeviceKey&) const = default;
};

/// What rows move and compute, for a comparison with the machine's peaks. Zeros: not known.
struct DeviceCost {
  double weight_bytes = 0;       // read by each pass that makes one row of logits
  double position_bytes = 0;     // of keys and values, read by a row for each position that it sees
  double row_operations = 0;     // of the matrix products of the layers, two for each weight
  double logits_operations = 0;  // likewise for a row of logits
};

/// Thread-safe. Passes are run one at a time, first come first served, so prefill chunks and decode steps
/// alternate.
class Device {
public:
  virtual ~Device() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const DeviceKey& key() const = 0;
  virtual std::string name() const = 0; // "cpu:0"
  virtual DeviceCost cost() const { return {}; }
  /// Whether a prompt's and a generated token's keys and values have equal bits, so that the cache may mix them.
  virtual bool one_path() const { return false; }

  BlockManager& blocks() { return *blocks_; }
  int32_t context_length() const { return context_length_; } // positions that one sequence may have

  /// Runs all rows through the model. Rows of one sequence stand together in ascending position; everything
  /// before the first of them is in the cache. logits: [rows that want them, vocab_size], in the order of
  /// rows. Equal rows give equal bits, whatever else is in the pass (origin rule; on a CPU prompt and
  /// generated rows share one path).
  /// Returns the seconds that it took, without the wait for its turn.
  double forward(std::span<const Row> rows, std::span<float> logits);
  /// Copies the front of a block, all layers. Between the passes, as a pass takes its turn; not counted as one.
  void copy(const BlockCopy& copy);

  /// Seconds spent in passes and rows run so far.
  struct Counters {
    double busy_seconds = 0;
    int64_t passes = 0;
    int64_t rows = 0;
    std::chrono::steady_clock::time_point last_pass{}; // when it ended
  };
  Counters counters() const;

protected:
  Device(int32_t n_blocks, int32_t context_length);
  virtual void run_pass(std::span<const Row> rows, std::span<float> logits) = 0;
  virtual void copy_block(const BlockCopy& copy) = 0;

private:
  class Turn;

  std::shared_ptr<BlockManager> blocks_;
  int32_t context_length_;
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ticket_ = 0, serving_ = 0;
  Counters counters_;
};

class Model; // model/model.hpp

struct CpuDeviceOptions {
  int threads = 0;            // 0: all physical cores
  int32_t context_length = 0; // 0: the model's, at most 4096
  int64_t kv_positions = 0;   // 0: 16 contexts, or what a quarter of the memory holds; rounded up to blocks
  Isa isa = Isa::scalar;      // see active_isa()
  Activations activations = Activations::q8; // ignored (f32) on the scalar path
  bool prefix_cache = true; // whether blocks are kept for other sequences that begin alike
  std::function<void(double)> progress;      // share of the weights that is packed, 0 … 1
};

/// Packs the weights for this CPU; holds the model. Throws std::invalid_argument for options that model or
/// machine can't satisfy, FormatError for a model beyond the kernels' limits.
std::unique_ptr<Device> make_cpu_device(std::shared_ptr<const Model> model, const CpuDeviceOptions& options,
                                        int index = 0);

} // namespace millrace
