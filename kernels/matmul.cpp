#include "kernels/matmul.hpp"

#include "kernels/dequantize.hpp"
#include "kernels/tiles.hpp"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <vector>

namespace millrace {

struct PackedMatrix::Layout {
  Layout(const Matrix& w, Isa isa) : view(w), isa(isa) {}
  Layout(const Layout&) = delete;
  ~Layout() { std::free(tiles); }

  Matrix view;      // of the file; read by the scalar path only
  Isa isa;
  uint8_t* tiles = nullptr;
  int64_t n_tiles = 0;
  size_t tile_bytes = 0;
};

namespace {

const TileKernels& kernels_of(Isa isa) {
  assert(isa != Isa::scalar);
  return isa == Isa::avx2     ? tile_kernels_avx2()
         : isa == Isa::avx512 ? tile_kernels_avx512()
                              : tile_kernels_avx512vnni();
}

/// Huge pages spare the page walks of a pass that reads all weights once.
uint8_t* allocate_tiles(size_t bytes) {
  constexpr size_t kHugePage = 2u << 20;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size);
  if (!memory) throw std::bad_alloc();
  if (alignment == kHugePage) ::madvise(memory, size, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(memory);
}

/// The reference: a row of w as floats, once, then its product with each row of x, in ascending k.
void matmul_reference(float* out, int64_t out_stride, const ActivationRows& x, const Matrix& w, ThreadPool& pool) {
  constexpr int64_t kRowsPerTask = 16;
  pool.run(int((w.rows + kRowsPerTask - 1) / kRowsPerTask), [&](int task, int) {
    std::vector<float> row(static_cast<size_t>(w.cols));
    for (int64_t n = task * kRowsPerTask; n < std::min(w.rows, (task + 1) * kRowsPerTask); ++n) {
      dequantize(row.data(), w.row(n), w.cols, w.type);
      for (int64_t m = 0; m < x.rows(); ++m) {
        float sum = 0;
        for (int64_t k = 0; k < w.cols; ++k) sum += row[size_t(k)] * x.x()[m * w.cols + k];
        out[m * out_stride + n] = sum;
      }
    }
  });
}

} // namespace

PackedMatrix::PackedMatrix(const Matrix& w, Isa isa, ThreadPool& pool) : rows_(w.rows), cols_(w.cols), type_(w.type) {
  auto layout = std::make_shared<Layout>(w, isa);
  if (isa != Isa::scalar && w.rows > 0) {
    layout->n_tiles = (w.rows + kTileRows - 1) / kTileRows;
    layout->tile_bytes = millrace::tile_bytes(w.type, w.cols);
    layout->tiles = allocate_tiles(size_t(layout->n_tiles) * layout->tile_bytes);
    pool.run(int(layout->n_tiles), [&](int t, int) {
      pack_tile(layout->tiles + size_t(t) * layout->tile_bytes, w, int64_t(t) * kTileRows);
    });
  }
  layout_ = std::move(layout);
}

size_t PackedMatrix::bytes() const {
  if (!layout_) return 0;
  return layout_->isa == Isa::scalar ? size_t(rows_) * row_bytes(type_, cols_)
                                     : size_t(layout_->n_tiles) * layout_->tile_bytes;
}

struct ActivationRows::Prepared {
  Quantised quantised;
  Floats floats;
  bool has_quantised = false, has_floats = false;
};

ActivationRows::ActivationRows() : prepared_(std::make_unique<Prepared>()) {}
ActivationRows::~ActivationRows() = default;
ActivationRows::ActivationRows(ActivationRows&&) noexcept = default;
ActivationRows& ActivationRows::operator=(ActivationRows&&) noexcept = default;

void ActivationRows::set(const float* x, int64_t rows, int64_t cols, Activations activations, Isa isa) {
  x_ = x;
  rows_ = rows;
  cols_ = cols;
  activations_ = isa == Isa::scalar || cols % kRun != 0 ? Activations::f32 : activations;
  isa_ = isa;
  prepared_->has_quantised = prepared_->has_floats = false;
}

const ActivationRows::Quantised& ActivationRows::quantised(ThreadPool& pool) const {
  Quantised& out = prepared_->quantised;
  if (prepared_->has_quantised) return out;
  out.group = rows_ == 1 ? 1 : kRowGroup;
  const size_t elements = size_t((rows_ + kRowGroup - 1) / kRowGroup * out.group * (cols_ / kRun));
  if (out.scale.size() < elements) {
    out.q.resize(elements * kRun);
    out.scale.resize(elements);
    out.sum.resize(2 * elements);
  }
  // A group's rows share cache lines, so they stay with one thread.
  pool.run(int((rows_ + kRowGroup - 1) / kRowGroup), [&](int group, int) {
    const int64_t end = std::min<int64_t>(rows_, (int64_t{group} + 1) * kRowGroup);
    for (int64_t row = int64_t{group} * kRowGroup; row < end; ++row)
      kernels_of(isa_).quantise(out, x_ + row * cols_, row, cols_);
  });
  prepared_->has_quantised = true;
  return out;
}

const ActivationRows::Floats& ActivationRows::floats(ThreadPool& pool) const {
  Floats& out = prepared_->floats;
  if (prepared_->has_floats) return out;
  if (rows_ < 4) {
    out.x = x_;
    out.group_stride = kRowGroup * cols_;
    out.row_stride = cols_;
    out.k_stride = 1;
    prepared_->has_floats = true;
    return out;
  }
  const int64_t groups = (rows_ + kRowGroup - 1) / kRowGroup;
  const size_t n = size_t(groups * kRowGroup * cols_);
  if (out.interleaved.size() < n) out.interleaved.resize(n);
  out.x = out.interleaved.data();
  out.group_stride = kRowGroup * cols_;
  out.row_stride = 1;
  out.k_stride = kRowGroup;
  pool.run(int(groups), [&](int group, int) {
    float* to = out.interleaved.data() + group * out.group_stride;
    for (int64_t row = group * kRowGroup; row < std::min<int64_t>(rows_, (group + 1) * kRowGroup); ++row)
      for (int64_t k = 0; k < cols_; ++k) to[k * kRowGroup + row % kRowGroup] = x_[row * cols_ + k];
  });
  prepared_->has_floats = true;
  return out;
}

void matmul(float* out, int64_t out_stride, const ActivationRows& x, const PackedMatrix& w, ThreadPool& pool) {
  assert(x.cols() == w.cols());
  const PackedMatrix::Layout& layout = *w.layout();
  if (layout.isa == Isa::scalar) return matmul_reference(out, out_stride, x, layout.view, pool);
  const TileKernels& kernels = kernels_of(layout.isa);
  const bool q8 = is_quantised(w.type()) && x.activations() == Activations::q8;
  const ActivationRows::Quantised* quantised = q8 ? &x.quantised(pool) : nullptr;
  const ActivationRows::Floats* floats = q8 ? nullptr : &x.floats(pool);
  // Enough tasks that a thread which lost its core holds the others up for an eighth of the work at most.
  const int64_t per_task = std::clamp<int64_t>(layout.n_tiles / (pool.size() * 8), 1, 64);
  pool.run(int((layout.n_tiles + per_task - 1) / per_task), [&](int task, int) {
    const int64_t first = task * per_task;
    const TileJob job{.out = out + first * kTileRows,
                      .out_stride = out_stride,
                      .out_cols = w.rows() - first * kTileRows,
                      .tiles = layout.tiles + size_t(first) * layout.tile_bytes,
                      .tile_bytes = layout.tile_bytes,
                      .n_tiles = int(std::min(per_task, layout.n_tiles - first)),
                      .type = w.type(),
                      .rows = x.rows(),
                      .cols = x.cols(),
                      .quantised = quantised,
                      .floats = floats};
    q8 ? kernels.q8(job) : kernels.f32(job);
  });
}

} // namespace millrace
