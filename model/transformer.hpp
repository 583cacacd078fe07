#pragma once

// The decoder of the Llama family (Touvron et al. 2023; grouped queries: Ainslie et al. 2023) and of Qwen2,
// which adds biases to q, k and v.

#include "kernels/matmul.hpp"
#include "model/device.hpp"
#include "model/kv_pool.hpp"
#include "model/model.hpp"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace millrace {

/// Weights laid out for this CPU, and the pass over them. Not thread-safe: it owns a pass's scratch memory.
class Transformer {
public:
  /// Packs the weights; progress, if any, is told the share that is done. positions: of the longest sequence.
  Transformer(std::shared_ptr<const Model> model, int32_t positions, Isa isa, Activations activations,
              ThreadPool& pool, const std::function<void(double)>& progress);

  /// As Device::forward. Allocates only when there are more rows than ever before.
  void forward(std::span<const Row> rows, const KvPool& kv, std::span<float> logits);

private:
  struct Layer {
    PackedMatrix q, k, v, o, gate, up, down;
  };

  void begin_pass(std::span<const Row> rows);
  void keep_rows_that_want_logits(std::span<const Row> rows);

  // Steps of a layer: from x_ or the inputs_ to the named buffer.
  void normalize(const std::vector<float>& weight);         // inputs_ = the norm of x_
  void take(const std::vector<float>& rows, int64_t width); // inputs_ = these
  void project(std::vector<float>& out, const PackedMatrix& w, const std::vector<float>& bias = {});
  void rotate();     // q_, k_
  void activate();   // gate_ = silu(gate_) * up_
  void add_update(); // x_ += update_
  template <class Step> void for_rows(int64_t width, Step step);

  std::shared_ptr<const Model> model_;
  const ModelConfig& config_;
  Isa isa_;
  Activations activations_;
  ThreadPool& pool_;
  AttentionShape shape_;
  int64_t q_width_, kv_width_; // numbers of a row's queries, and of its keys or values
  RopeTable rope_;
  std::vector<Layer> layers_;
  PackedMatrix output_;

  int64_t rows_ = 0;               // of the pass
  std::vector<int32_t> positions_; // [rows]
  std::vector<RowPlace> places_;   // [rows]
  std::vector<float> x_;           // [rows, hidden]: the residual stream
  std::vector<float> normed_;      // [rows, hidden]
  std::vector<float> q_, mixed_;   // [rows, heads, head_dim]: queries; the values mixed for them
  std::vector<float> k_, v_;       // [rows, kv_heads, head_dim]
  std::vector<float> gate_, up_;   // [rows, intermediate]
  std::vector<float> update_;      // [rows, hidden]
  ActivationRows inputs_;          // what the next projections read
};

} // namespace millrace
