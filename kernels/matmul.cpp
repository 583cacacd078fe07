#include "kernels/matmul.hpp"

#include "kernels/dequantize.hpp"

#include <cassert>

namespace millrace {

struct PackedMatrix::Layout {
  Matrix view;
};

PackedMatrix::PackedMatrix(const Matrix& w, Isa, ThreadPool&)
  : rows_(w.rows), cols_(w.cols), type_(w.type), layout_(std::make_shared<Layout>(Layout{w})) {}

size_t PackedMatrix::bytes() const { return size_t(rows_) * row_bytes(type_, cols_); }

void ActivationRows::set(const float* x, int64_t rows, int64_t cols, Activations, Isa, ThreadPool&) {
  x_ = x;
  rows_ = rows;
  cols_ = cols;
}

void matmul(float* out, int64_t out_stride, const ActivationRows& x, const PackedMatrix& w, ThreadPool& pool) {
  assert(x.cols() == w.cols());
  const Matrix& view = w.layout()->view;
  constexpr int64_t kRowsPerTask = 64;
  const int64_t tasks = (w.rows() + kRowsPerTask - 1) / kRowsPerTask;
  pool.run(int(tasks), [&](int task, int) {
    std::vector<float> row(size_t(w.cols()));
    for (int64_t n = task * kRowsPerTask; n < std::min(w.rows(), (task + 1) * kRowsPerTask); ++n) {
      dequantize(row.data(), view.row(n), w.cols(), w.type());
      for (int64_t m = 0; m < x.rows(); ++m) {
        float sum = 0;
        for (int64_t k = 0; k < w.cols(); ++k) sum += row[size_t(k)] * x.x()[m * w.cols() + k];
        out[m * out_stride + n] = sum;
      }
    }
  });
}

} // namespace millrace
