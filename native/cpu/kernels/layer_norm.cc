// Layer norm. y = (x - mean) * rstd * w + b by rows, and y in another float dtype, too or alone, if
// that is wanted; two passes over a row that stays in cache. If there is a residual, of x +
// residual, which is written.
// Gradients of w and b are sums over fixed blocks of rows, so they do not depend on the number of
// threads.
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_sum.h"

namespace shardwise::cpu {

namespace {

template <class T>
struct Affine {
  RowBuffer<T> values;
  const T* data = nullptr;
  Affine(const TensorView& view, int64_t n) : values(view.is_immediate ? 0 : n) {
    if (!view.is_immediate) data = read_row(view, 0, n, values.data());
  }
};

constexpr int64_t kBlockRows = 32;

template <class T>
struct RowStatistics {
  T mean, rstd, residual;  // `residual`: rounding error of mean, times rstd
};

// Deviations from a center near the mean, corrected: in a row far from 0 the rounding error of the
// mean may exceed the width of the row.
template <class T>
RowStatistics<T> statistics_of(const T* x, int64_t n, double eps) {
  const int64_t samples = center_count(n);
  const T center = row_sum(x, samples) / T(samples);
  const Deviations<T> deviations = row_deviations(x, center, n);
  const double shift = static_cast<double>(deviations.sum) / static_cast<double>(n);
  const double variance =
      static_cast<double>(deviations.squares) / static_cast<double>(n) - shift * shift;
  const double mean = static_cast<double>(center) + shift;
  const double rstd = 1 / std::sqrt((variance < 0 ? 0 : variance) + eps);
  return {T(mean), T(rstd), T((mean - static_cast<double>(T(mean))) * rstd)};
}

// gx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = g * w. Adds to the sums gw and gb.
template <class T>
inline __attribute__((always_inline)) void gradient_loop(const T* g, const T* x, const T* w, T mean,
                                                         T rstd, T* gx, T* gw, T* gb, int64_t n) {
  T sums[kLanes] = {}, dots[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; k++) {
      const T s = w ? g[i + k] * w[i + k] : g[i + k];
      sums[k] += s;
      dots[k] += s * (x[i + k] - mean) * rstd;
    }
  for (int64_t k = 0; i < n; i++, k++) {
    const T s = w ? g[i] * w[i] : g[i];
    sums[k] += s;
    dots[k] += s * (x[i] - mean) * rstd;
  }
  const T a = row_sum(sums, kLanes) / T(n), b = row_sum(dots, kLanes) / T(n);
  if (gx)
    for (int64_t j = 0; j < n; j++) {
      const T s = w ? g[j] * w[j] : g[j];
      gx[j] = rstd * (s - a - (x[j] - mean) * rstd * b);
    }
  for (int64_t j = 0; j < n; j++) {
    gw[j] += g[j] * (x[j] - mean) * rstd;
    gb[j] += g[j];
  }
}

// target_clones does not apply to templates.
SW_CLONES void gradient_row(const float* g, const float* x, const float* w, float mean, float rstd,
                            float* gx, float* gw, float* gb, int64_t n) {
  gradient_loop(g, x, w, mean, rstd, gx, gw, gb, n);
}
SW_CLONES void gradient_row(const double* g, const double* x, const double* w, double mean,
                            double rstd, double* gx, double* gw, double* gb, int64_t n) {
  gradient_loop(g, x, w, mean, rstd, gx, gw, gb, n);
}

}  // namespace

Status layer_norm(const KernelCall& call) {
  const double eps = call.params_as<LayerNormParams>().eps;
  const TensorView &x = call.input(0), &residual = call.input(3), &y = call.output(0),
                   &low = call.output(3), &sum = call.output(4);
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  if (x.numel == 0) return kOk;
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const Affine<T> w(call.input(1), n), b(call.input(2), n);
    parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(4 * n);
      for (int64_t row = begin; row < end; row++) {
        const T* in = read_row(x, row, n, memory.data());
        if (!residual.is_immediate)
          in = row_of_sum(in, residual, sum, row, n, memory.data() + 2 * n);
        T* out = y.is_immediate ? memory.data() + n : row_target(y, row, n, memory.data() + n);
        const RowStatistics<T> s = statistics_of(in, n, eps);
        row_normalize(in, s.mean, s.rstd, s.residual, w.data, b.data, out, n);
        if (!y.is_immediate) store_row(y, row, n, out, memory.data() + n);
        if (!low.is_immediate) scatter(low, row * n, n, out);
        scatter(call.output(1), row, 1, &s.mean);
        scatter(call.output(2), row, 1, &s.rstd);
      }
    });
  });
  return kOk;
}

Status layer_norm_backward(const KernelCall& call) {
  const TensorView &g = call.input(0), &x = call.input(1), &more = call.input(5),
                   &gx = call.output(0), &low = call.output(3);
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const Affine<T> w(call.input(4), n);
    const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
    std::vector<T> partial(static_cast<size_t>(2 * n * (blocks > 0 ? blocks : 1)), T(0));
    parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(4 * n);
      for (int64_t block = begin; block < end; block++) {
        T* gw = partial.data() + 2 * n * block;
        const int64_t last = (block + 1) * kBlockRows < rows ? (block + 1) * kBlockRows : rows;
        for (int64_t row = block * kBlockRows; row < last; row++) {
          T mean, rstd;
          gather(call.input(2), row, 1, &mean);
          gather(call.input(3), row, 1, &rstd);
          const T* grad = read_row(g, row, n, memory.data());
          const T* in = read_row(x, row, n, memory.data() + n);
          T* out = gx.is_immediate ? nullptr : row_target(gx, row, n, memory.data() + 2 * n);
          gradient_row(grad, in, w.data, mean, rstd, out, gw, gw + n, n);
          if (out && !more.is_immediate)
            row_scale_add(read_row(more, row, n, memory.data() + 3 * n), T(1), out, n);
          if (out) store_row(gx, row, n, out, memory.data() + 2 * n);
          if (out && !low.is_immediate) scatter(low, row * n, n, out);
        }
      }
    });
    for (int64_t block = 1; block < blocks; block++)
      row_scale_add(partial.data() + 2 * n * block, T(1), partial.data(), 2 * n);
    if (!call.output(1).is_immediate) scatter(call.output(1), 0, n, partial.data());
    if (!call.output(2).is_immediate) scatter(call.output(2), 0, n, partial.data() + n);
  });
  return kOk;
}

}  // namespace shardwise::cpu
