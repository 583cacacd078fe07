#include "model/kv_pool.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace millrace {

namespace {

int64_t floats_per_layer(const ModelConfig& config) {
  return 2 * int64_t(config.n_kv_heads) * config.head_dim * kBlockSize;
}

} // namespace

size_t KvPool::bytes_per_block(const ModelConfig& config) {
  return size_t(floats_per_layer(config)) * size_t(config.n_layers) * sizeof(float);
}

KvPool::KvPool(int32_t n_blocks, const ModelConfig& config)
    : n_layers_{config.n_layers}, n_kv_heads_{config.n_kv_heads}, head_dim_{config.head_dim},
      layer_floats_{floats_per_layer(config)},
      block_floats_{layer_floats_ * config.n_layers}, bytes_{size_t(n_blocks) * bytes_per_block(config)} {
  if (bytes_ == 0)
    return;
  void* memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw std::system_error{errno, std::generic_category(),
                            "KV pool of " + std::to_string(bytes_) + " bytes"};
  madvise(memory, bytes_, MADV_HUGEPAGE); // a wish: attention walks blocks that lie apart
  floats_ = static_cast<float*>(memory);
}

KvPool::~KvPool() {
  if (floats_)
    munmap(floats_, bytes_);
}

KvLayer KvPool::layer(int32_t index) const {
  float* keys = floats_ + index * layer_floats_;
  return {.keys = keys, .values = keys + layer_floats_ / 2, .stride = block_floats_};
}

void KvPool::copy(const BlockCopy& copy) const {
  for (int32_t l = 0; l < n_layers_; ++l)
    copy_kv(layer(l), copy.from, copy.to, copy.positions, n_kv_heads_, head_dim_);
}

} // namespace millrace
