#pragma once

#include "kernels/attention.hpp"
#include "model/block_manager.hpp"
#include "model/config.hpp"

#include <cstddef>

namespace millrace {

/// Memory for keys and values of n_blocks blocks, in float: [n_blocks, n_layers, keys and values].
/// A block is contiguous over all layers. The system provides a page when it is first written.
class KvPool {
public:
  static size_t bytes_per_block(const ModelConfig& config);

  /// Throws std::system_error if the address space can't be had.
  KvPool(int32_t n_blocks, const ModelConfig& config);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  KvLayer layer(int32_t index) const;
  /// In all layers.
  void copy(const BlockCopy& copy) const;
  size_t bytes() const { return bytes_; }

private:
  int32_t n_layers_, n_kv_heads_, head_dim_;
  int64_t layer_floats_; // keys and values of one layer of a block
  int64_t block_floats_;
  size_t bytes_;
  float* floats_ = nullptr;
};

} // namespace millrace
