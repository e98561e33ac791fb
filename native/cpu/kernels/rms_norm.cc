// RMS norm of rows, and of the sum of two tensors. y = x * rstd * w by rows, rstd = 1 /
// sqrt(mean(x^2) + eps); and y in another float dtype if that is wanted.
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_sum.h"

namespace shardwise::cpu {

namespace {

constexpr int64_t kBlockRows = 32;

template <class T>
std::vector<T> weight_of(const TensorView& view, int64_t n) {
  std::vector<T> values;
  if (view.is_immediate) return values;
  values.resize(static_cast<size_t>(n));
  gather(view, 0, n, values.data());
  return values;
}

struct Results {
  const TensorView &y, &rstd, &low;
};

// One row.
template <class T>
void normalize_row(const T* x, const std::vector<T>& w, double eps, int64_t row, int64_t n,
                   const Results& to, T* buffer) {
  T* out = to.y.is_immediate ? buffer : row_target(to.y, row, n, buffer);
  const T rstd =
      T(1 /
        std::sqrt(static_cast<double>(row_square_sum(x, T(0), n)) / static_cast<double>(n) + eps));
  row_normalize(x, T(0), rstd, T(0), w.empty() ? nullptr : w.data(), nullptr, out, n);
  if (!to.y.is_immediate) store_row(to.y, row, n, out, buffer);
  if (!to.low.is_immediate) scatter(to.low, row * n, n, out);
  scatter(to.rstd, row, 1, &rstd);
}

struct Gradients {
  const TensorView &g, &x, &rstd, &weight, &more, &gx, &gw, &low;
};

// gx = rstd * (gw - xhat * mean(gw * xhat)) + more, gw = g * w. Sums over rows by fixed blocks of
// them.
template <class T>
void backward(const Gradients& v) {
  const int64_t rows = v.x.sizes[0], n = v.x.sizes[1];
  const std::vector<T> w = weight_of<T>(v.weight, n);
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  std::vector<T> partial(static_cast<size_t>(n * (blocks > 0 ? blocks : 1)), T(0));
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    RowBuffer<T> memory(5 * n);
    T *scaled = memory.data() + 3 * n, *others = memory.data() + 4 * n;
    for (int64_t row = begin * kBlockRows; row < end * kBlockRows && row < rows; row++) {
      T rstd;
      gather(v.rstd, row, 1, &rstd);
      const T* grad = read_row(v.g, row, n, memory.data());
      const T* in = read_row(v.x, row, n, memory.data() + n);
      T* gw = partial.data() + n * (row / kBlockRows);
      for (int64_t i = 0; i < n; i++) {
        scaled[i] = w.empty() ? grad[i] : grad[i] * w[i];
        gw[i] += grad[i] * in[i] * rstd;
      }
      if (v.gx.is_immediate) continue;
      const T inner = row_dot(scaled, in, n) * rstd / T(n);
      for (int64_t i = 0; i < n; i++) scaled[i] = rstd * (scaled[i] - in[i] * rstd * inner);
      if (!v.more.is_immediate) row_scale_add(read_row(v.more, row, n, others), T(1), scaled, n);
      T* out = row_target(v.gx, row, n, memory.data() + 2 * n);
      for (int64_t i = 0; i < n; i++) out[i] = scaled[i];
      store_row(v.gx, row, n, out, memory.data() + 2 * n);
      if (!v.low.is_immediate) scatter(v.low, row * n, n, out);
    }
  });
  for (int64_t block = 1; block < blocks; block++)
    row_scale_add(partial.data() + n * block, T(1), partial.data(), n);
  if (!v.gw.is_immediate) scatter(v.gw, 0, n, partial.data());
}

}  // namespace

Status rms_norm(const KernelCall& call) {
  const double eps = call.params_as<RmsNormParams>().eps;
  const TensorView& x = call.input(0);
  const Results to{call.output(0), call.output(1), call.output(2)};
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  if (x.numel == 0) return kOk;
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const std::vector<T> w = weight_of<T>(call.input(1), n);
    parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(2 * n);
      for (int64_t row = begin; row < end; row++) {
        const T* in = read_row(x, row, n, memory.data());
        normalize_row(in, w, eps, row, n, to, memory.data() + n);
      }
    });
  });
  return kOk;
}

Status rms_norm_backward(const KernelCall& call) {
  const Gradients v{call.input(0), call.input(1),  call.input(2),  call.input(3),
                    call.input(4), call.output(0), call.output(1), call.output(2)};
  with_float_type(v.x.dtype, [&](auto type) { backward<decltype(type)>(v); });
  return kOk;
}

// Inputs x, residual, weight; outputs y, the sum in its dtype, rstd, low. Normalises the rounded
// sum.
Status add_rms_norm(const KernelCall& call) {
  const double eps = call.params_as<AddRmsNormParams>().eps;
  const TensorView &x = call.input(0), &residual = call.input(1), &sum = call.output(1);
  const Results to{call.output(0), call.output(2), call.output(3)};
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  if (x.numel == 0) return kOk;
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const std::vector<T> w = weight_of<T>(call.input(2), n);
    parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(4 * n);
      for (int64_t row = begin; row < end; row++) {
        const T* a = read_row(x, row, n, memory.data());
        const T* in = row_of_sum(a, residual, sum, row, n, memory.data() + n);
        normalize_row(in, w, eps, row, n, to, memory.data() + 3 * n);
      }
    });
  });
  return kOk;
}

}  // namespace shardwise::cpu
