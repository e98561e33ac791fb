// RMS norm. y = x * rstd * w by rows, rstd = 1 / sqrt(mean(x^2) + eps).
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

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

}  // namespace

Status rms_norm(const KernelCall& call) {
  const double eps = call.params_as<RmsNormParams>().eps;
  const TensorView &x = call.input(0), &y = call.output(0);
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  if (x.numel == 0) return kOk;
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const std::vector<T> w = weight_of<T>(call.input(1), n);
    parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(2 * n);
      for (int64_t row = begin; row < end; row++) {
        const T* in = read_row(x, row, n, memory.data());
        T* out = row_target(y, row, n, memory.data() + n);
        const T rstd = T(1 / std::sqrt(static_cast<double>(row_square_sum(in, T(0), n)) / static_cast<double>(n) + eps));
        row_normalize(in, T(0), rstd, T(0), w.empty() ? nullptr : w.data(), nullptr, out, n);
        store_row(y, row, n, out, memory.data() + n);
        scatter(call.output(1), row, 1, &rstd);
      }
    });
  });
  return kOk;
}

// gx = rstd * (gw - xhat * mean(gw * xhat)), gw = g * w
Status rms_norm_backward(const KernelCall& call) {
  const TensorView &g = call.input(0), &x = call.input(1), &gx = call.output(0);
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    const std::vector<T> w = weight_of<T>(call.input(3), n);
    const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
    std::vector<T> partial(static_cast<size_t>(n * (blocks > 0 ? blocks : 1)), T(0));
    parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(4 * n);
      T* scaled = memory.data() + 3 * n;
      for (int64_t row = begin * kBlockRows; row < end * kBlockRows && row < rows; row++) {
        T rstd;
        gather(call.input(2), row, 1, &rstd);
        const T* grad = read_row(g, row, n, memory.data());
        const T* in = read_row(x, row, n, memory.data() + n);
        T* gw = partial.data() + n * (row / kBlockRows);
        for (int64_t i = 0; i < n; i++) {
          scaled[i] = w.empty() ? grad[i] : grad[i] * w[i];
          gw[i] += grad[i] * in[i] * rstd;
        }
        if (gx.is_immediate) continue;
        const T inner = row_dot(scaled, in, n) * rstd / T(n);
        T* out = row_target(gx, row, n, memory.data() + 2 * n);
        for (int64_t i = 0; i < n; i++) out[i] = rstd * (scaled[i] - in[i] * rstd * inner);
        store_row(gx, row, n, out, memory.data() + 2 * n);
      }
    });
    for (int64_t block = 1; block < blocks; block++) row_scale_add(partial.data() + n * block, T(1), partial.data(), n);
    if (!call.output(1).is_immediate) scatter(call.output(1), 0, n, partial.data());
  });
  return kOk;
}

}  // namespace shardwise::cpu
