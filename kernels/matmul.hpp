#pragma once

// out[m, n] = sum over k of x[m, k] * w[n, k]        x: [rows, cols], w: [out_cols, cols], out: [rows, out_cols]
//
// Origin rule: a row of out depends on its row of x, on w, on the path and on the activation type only; never on how
// many rows are asked at once, nor on the number of threads. Each output is summed by one lane in ascending order of k.

#include "kernels/dtype.hpp"
#include "kernels/isa.hpp"
#include "kernels/thread_pool.hpp"

#include <memory>
#include <vector>

namespace millrace {

/// What the activations are rounded to before they meet a quantised matrix.
/// f32: not at all (exact on the dequantised weights; always so for F32, F16 and BF16 matrices).
/// q8: to 8 bits with one float scale for each 32 of them; products are summed exactly in int32 within a block.
enum class Activations { f32, q8 };

/// A weight matrix laid out for one path. Immutable after construction; owns its bytes.
class PackedMatrix {
public:
  PackedMatrix() = default;
  /// Repacks w for `isa`; the scalar path keeps a view of w instead, which must then outlive this.
  PackedMatrix(const Matrix& w, Isa isa, ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType type() const { return type_; }
  size_t bytes() const; // in memory, that one pass reads

  struct Layout; // matmul.cpp
  const Layout* layout() const { return layout_.get(); }

private:
  int64_t rows_ = 0, cols_ = 0;
  DType type_ = DType::f32;
  std::shared_ptr<const Layout> layout_;
};

/// Rows of activations that meet any number of matrices. What a matrix needs of them (8-bit codes, an interleaved copy) is
/// made on the first use and kept until the next set(). Reused across passes: allocates only when it grows.
class ActivationRows {
public:
  /// Takes x: [rows, cols]; keeps a view of x, which must stay until the last matmul.
  void set(const float* x, int64_t rows, int64_t cols, Activations activations, Isa isa);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  const float* x() const { return x_; }
  /// f32 where cols is not a multiple of 32 or the path is scalar.
  Activations activations() const { return activations_; }

  struct Quantised; // kernels/tiles.hpp
  struct Floats;
  /// Not thread-safe: called by matmul() before its loop.
  const Quantised& quantised(ThreadPool& pool) const;
  const Floats& floats(ThreadPool& pool) const;

  ActivationRows();
  ~ActivationRows();
  ActivationRows(ActivationRows&&) noexcept;
  ActivationRows& operator=(ActivationRows&&) noexcept;

private:
  const float* x_ = nullptr;
  int64_t rows_ = 0, cols_ = 0;
  Activations activations_ = Activations::f32;
  Isa isa_ = Isa::scalar;
  struct Prepared;
  std::unique_ptr<Prepared> prepared_;
};

/// out: [x.rows, w.rows], with `out_stride` floats from row to row.
void matmul(float* out, int64_t out_stride, const ActivationRows& x, const PackedMatrix& w, ThreadPool& pool);

} // namespace millrace
