#include "model/transformer.hpp"

#include "kernels/activation.hpp"
#include "kernels/attention.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/rmsnorm.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace millrace {

void Transformer::forward(std::span<const Row> rows, const KvPool& kv, std::span<float> logits) {
  begin_pass(rows);
  for (int32_t i = 0; i < config_.n_layers; ++i) {
    const LayerTensors& tensors = model_->layers[size_t(i)];
    const Layer& w = layers_[size_t(i)];
    const KvLayer cache = kv.layer(i);

    normalize(tensors.attn_norm);
    project(q_, w.q, tensors.q_bias);
    project(k_, w.k, tensors.k_bias);
    project(v_, w.v, tensors.v_bias);
    rotate();
    store_kv(cache, k_.data(), v_.data(), kv_width_, places_, shape_);
    if (i + 1 == config_.n_layers) {
      keep_rows_that_want_logits(rows);
      if (rows_ == 0)
        return;
    }
    attention(mixed_.data(), q_width_, q_.data(), q_width_, places_, cache, shape_, pool_, isa_);
    take(mixed_, q_width_);
    project(update_, w.o, tensors.o_bias);
    add_update();

    normalize(tensors.ffn_norm);
    project(gate_, w.gate);
    project(up_, w.up);
    activate();
    take(gate_, config_.intermediate_size);
    project(update_, w.down);
    add_update();
  }
  normalize(model_->output_norm);
  matmul(logits.data(), config_.vocab_size, inputs_, output_, pool_);
}

Transformer::Transformer(std::shared_ptr<const Model> model, int32_t positions, Isa isa,
                         Activations activations, ThreadPool& pool,
                         const std::function<void(double)>& progress)
    : model_{std::move(model)}, config_{model_->config()}, isa_{isa}, activations_{activations}, pool_{pool},
      shape_{config_.n_heads, config_.n_kv_heads, config_.head_dim, 1 / std::sqrt(float(config_.head_dim))},
      q_width_{shape_.heads * shape_.head_dim}, kv_width_{shape_.kv_heads * shape_.head_dim},
      rope_{positions, config_.rope_dim, config_.rope_theta, model_->rope_factors} {
  auto bytes = [](const Matrix& m) { return double(row_bytes(m.type, m.cols)) * double(m.rows); };
  double total = bytes(model_->output), done = 0;
  for (const LayerTensors& t : model_->layers)
    for (const Matrix* m : {&t.q, &t.k, &t.v, &t.o, &t.gate, &t.up, &t.down})
      total += bytes(*m);
  auto pack = [&](const Matrix& m) {
    PackedMatrix packed{m, isa, pool};
    done += bytes(m);
    if (progress)
      progress(done / total);
    return packed;
  };

  for (const LayerTensors& t : model_->layers)
    layers_.push_back({.q = pack(t.q),
                       .k = pack(t.k),
                       .v = pack(t.v),
                       .o = pack(t.o),
                       .gate = pack(t.gate),
                       .up = pack(t.up),
                       .down = pack(t.down)});
  output_ = pack(model_->output);
}

void Transformer::begin_pass(std::span<const Row> rows) {
  rows_ = int64_t(rows.size());
  positions_.clear();
  places_.clear();
  for (const Row& row : rows) {
    positions_.push_back(row.position);
    places_.push_back({row.position, row.blocks.data()});
  }
  auto grow = [&](std::vector<float>& buffer, int64_t width) {
    buffer.resize(std::max(buffer.size(), size_t(rows_ * width)));
  };
  for (auto* buffer : {&x_, &normed_, &update_})
    grow(*buffer, config_.hidden_size);
  for (auto* buffer : {&q_, &mixed_})
    grow(*buffer, q_width_);
  for (auto* buffer : {&k_, &v_})
    grow(*buffer, kv_width_);
  for (auto* buffer : {&gate_, &up_})
    grow(*buffer, config_.intermediate_size);

  const int64_t hidden = config_.hidden_size;
  for_rows(hidden, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      dequantize(&x_[size_t(r * hidden)], model_->embedding.row(rows[size_t(r)].token), hidden,
                 model_->embedding.type);
  });
}

// Once its keys and values are stored in the last layer, a row without logits has done its work.
void Transformer::keep_rows_that_want_logits(std::span<const Row> rows) {
  auto move_row = [](std::vector<float>& buffer, int64_t to, int64_t from, int64_t width) {
    std::copy_n(buffer.begin() + from * width, width, buffer.begin() + to * width);
  };
  int64_t kept = 0;
  for (int64_t r = 0; r < rows_; ++r)
    if (rows[size_t(r)].wants_logits) {
      if (kept != r) {
        move_row(x_, kept, r, config_.hidden_size);
        move_row(q_, kept, r, q_width_);
        places_[size_t(kept)] = places_[size_t(r)];
      }
      ++kept;
    }
  rows_ = kept;
  places_.resize(size_t(kept));
}

void Transformer::normalize(const std::vector<float>& weight) {
  const int64_t hidden = config_.hidden_size;
  for_rows(hidden, [&](int64_t begin, int64_t end) {
    rmsnorm(&normed_[size_t(begin * hidden)], &x_[size_t(begin * hidden)], weight.data(), end - begin, hidden,
            config_.norm_eps, isa_);
  });
  take(normed_, hidden);
}

void Transformer::take(const std::vector<float>& rows, int64_t width) {
  inputs_.set(rows.data(), rows_, width, activations_, isa_);
}

void Transformer::project(std::vector<float>& out, const PackedMatrix& w, const std::vector<float>& bias) {
  matmul(out.data(), w.rows(), inputs_, w, pool_);
  if (!bias.empty())
    for (int64_t r = 0; r < rows_; ++r)
      add(&out[size_t(r * w.rows())], bias.data(), w.rows());
}

void Transformer::rotate() {
  for_rows(q_width_ + kv_width_, [&](int64_t begin, int64_t end) {
    auto turn = [&](std::vector<float>& x, int64_t heads) {
      int64_t width = heads * shape_.head_dim;
      rope(&x[size_t(begin * width)], width, &positions_[size_t(begin)], end - begin, heads, shape_.head_dim,
           rope_, config_.rope_style, isa_);
    };
    turn(q_, shape_.heads);
    turn(k_, shape_.kv_heads);
  });
}

void Transformer::activate() {
  const int64_t width = config_.intermediate_size;
  for_rows(width, [&](int64_t begin, int64_t end) {
    float* gate = &gate_[size_t(begin * width)];
    silu_multiply(gate, gate, &up_[size_t(begin * width)], (end - begin) * width, isa_);
  });
}

void Transformer::add_update() {
  const int64_t hidden = config_.hidden_size;
  for_rows(hidden, [&](int64_t begin, int64_t end) {
    add(&x_[size_t(begin * hidden)], &update_[size_t(begin * hidden)], (end - begin) * hidden);
  });
}

/// Calls step(begin, end) for pieces of the rows, each large enough to be worth a thread's while.
template <class Step> void Transformer::for_rows(int64_t width, Step step) {
  constexpr int64_t kNumbersOfAPiece = 8192; // a few microseconds of work
  const int64_t piece = std::max<int64_t>(1, kNumbersOfAPiece / width);
  pool_.run(int((rows_ + piece - 1) / piece),
            [&](int i, int) { step(i * piece, std::min(i * piece + piece, rows_)); });
}

} // namespace millrace
