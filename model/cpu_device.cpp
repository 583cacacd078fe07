#include "model/device.hpp"
#include "model/kv_pool.hpp"
#include "model/transformer.hpp"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {
namespace {

int32_t choose_context(const ModelConfig& config, const CpuDeviceOptions& options) {
  constexpr int32_t kDefault = 4096;
  if (options.context_length < 0 || options.context_length > config.context_length)
    throw std::invalid_argument{"a context of " + std::to_string(options.context_length) +
                                " positions; the model's is 1 … " + std::to_string(config.context_length)};
  return options.context_length > 0 ? options.context_length : std::min(config.context_length, kDefault);
}

double physical_memory() {
  return double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
}

/// The pool is only address space until it is used, but when it is used, it has to fit.
int32_t choose_blocks(const ModelConfig& config, const CpuDeviceOptions& options) {
  const double bytes = double(KvPool::bytes_per_block(config));
  if (options.kv_positions == 0) {
    constexpr int64_t kDefaultContexts = 16; // as many as decode together by default, each of any length
    int64_t context = choose_context(config, options);
    int64_t fitting = int64_t(physical_memory() / 4 / bytes);
    return std::clamp<int64_t>(fitting, BlockManager::blocks_for(context),
                               kDefaultContexts * BlockManager::blocks_for(context));
  }
  int32_t blocks = options.kv_positions > 0 ? BlockManager::blocks_for(options.kv_positions) : 0;
  if (blocks == 0 || blocks * bytes > physical_memory())
    throw std::invalid_argument{"a KV pool of " + std::to_string(options.kv_positions) +
                                " positions; this machine holds 1 … " +
                                std::to_string(int64_t(physical_memory() / bytes) * kBlockSize)};
  return blocks;
}

Activations choose_activations(const CpuDeviceOptions& options) {
  return options.isa == Isa::scalar ? Activations::f32 : options.activations;
}

const ModelConfig& checked(const ModelConfig& config) {
  if (config.head_dim > kMaxHeadDim)
    throw FormatError{"heads of " + std::to_string(config.head_dim) + " numbers; the limit is " +
                      std::to_string(kMaxHeadDim)};
  return config;
}

/// Two for each weight.
double operations(const Matrix& matrix) {
  return 2.0 * double(matrix.rows) * double(matrix.cols);
}

DeviceCost cost_of(const Model& model) {
  DeviceCost cost;
  cost.weight_bytes = double(model.bytes_per_token());
  cost.position_bytes = double(KvPool::bytes_per_block(model.config())) / kBlockSize;
  for (const LayerTensors& layer : model.layers)
    for (const Matrix* m : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      cost.row_operations += operations(*m);
  cost.logits_operations = operations(model.output);
  return cost;
}

class CpuDevice final : public Device {
public:
  CpuDevice(std::shared_ptr<const Model> model, const CpuDeviceOptions& options, int index)
      : CpuDevice{model, options, index, choose_blocks(checked(model->config()), options)} {}

  const ModelConfig& config() const override { return model_->config(); }
  const DeviceKey& key() const override { return key_; }
  std::string name() const override { return "cpu:" + std::to_string(index_); }
  DeviceCost cost() const override { return cost_; }
  // A pass does the same for each row, whether its token was read or generated: tests compare the bits.
  bool one_path() const override { return true; }

private:
  CpuDevice(std::shared_ptr<const Model> model, const CpuDeviceOptions& options, int index, int32_t n_blocks)
      // A sequence can't be longer than the whole pool.
      : Device{n_blocks, int32_t(std::min(int64_t(choose_context(model->config(), options)),
                                          int64_t(n_blocks) * kBlockSize))},
        model_{std::move(model)}, index_{index}, activations_{choose_activations(options)},
        key_{model_->hash(), to_string(options.isa), activations_ == Activations::q8 ? "q8" : "f32"},
        pool_{options.threads > 0 ? options.threads : physical_cores()}, kv_{n_blocks, model_->config()},
        transformer_{model_, context_length(), options.isa, activations_, pool_, options.progress}, cost_{cost_of(*model_)} {
    blocks().set_caching(options.prefix_cache);
  }

  void run_pass(std::span<const Row> rows, std::span<float> logits) override {
    transformer_.forward(rows, kv_, logits);
  }

  void copy_block(const BlockCopy& copy) override { kv_.copy(copy); }

  std::shared_ptr<const Model> model_;
  int index_;
  Activations activations_;
  DeviceKey key_;
  ThreadPool pool_;
  KvPool kv_;
  Transformer transformer_;
  DeviceCost cost_;
};

} // namespace

std::unique_ptr<Device> make_cpu_device(std::shared_ptr<const Model> model, const CpuDeviceOptions& options,
                                        int index) {
  return std::make_unique<CpuDevice>(std::move(model), options, index);
}

} // namespace millrace
