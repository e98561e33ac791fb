// softmax and log softmax along the last dim, and their gradients. Math in float32 (float64 for
// float64), a row at a time.
#include <cmath>
#include <vector>

#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

// Calls fn(inputs as rows, output row, n) for every row.
template <int Inputs, class F>
Status over_rows(const KernelCall& call, F&& fn) {
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  const int64_t n = y.ndim ? y.sizes[y.ndim - 1] : 1;
  with_float_type(y.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(y.numel / n, row_grain(n * 4), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(n * (Inputs + 1));
      T* out_buffer = memory.data() + Inputs * n;
      for (int64_t row = begin; row < end; row++) {
        const T* inputs[Inputs];
        for (int i = 0; i < Inputs; i++)
          inputs[i] = read_row(call.input(i), row, n, memory.data() + i * n);
        T* out = row_target(y, row, n, out_buffer);
        fn(inputs, out, n);
        store_row(y, row, n, out, out_buffer);
      }
    });
  });
  return kOk;
}

SW_CLONES void softmax_gradient(const float* g, const float* y, float inner, float* out,
                                int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = y[i] * (g[i] - inner);
}
SW_CLONES void softmax_gradient(const double* g, const double* y, double inner, double* out,
                                int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = y[i] * (g[i] - inner);
}
SW_CLONES void log_softmax_gradient(const float* g, const float* y, float total, float* out,
                                    int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = g[i] - m::exp(y[i]) * total;
}
SW_CLONES void log_softmax_gradient(const double* g, const double* y, double total, double* out,
                                    int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = g[i] - m::exp(y[i]) * total;
}

}  // namespace

Status softmax(const KernelCall& call) {
  return over_rows<1>(call, [](const auto* const* x, auto* y, int64_t n) {
    using T = std::remove_pointer_t<decltype(y)>;
    const T total = row_exp(x[0], row_max(x[0], n), y, n);
    row_affine(y, T(1) / total, T(0), y, n);
  });
}

Status log_softmax(const KernelCall& call) {
  return over_rows<1>(call, [](const auto* const* x, auto* y, int64_t n) {
    using T = std::remove_pointer_t<decltype(y)>;
    const T largest = row_max(x[0], n);
    const T total = row_exp_sum(x[0], largest, n);
    const T shift = static_cast<T>(std::log(static_cast<double>(total)));
    for (int64_t i = 0; i < n; i++) y[i] = x[0][i] - largest - shift;
  });
}

Status softmax_backward(const KernelCall& call) {
  return over_rows<2>(call, [](const auto* const* in, auto* out, int64_t n) {
    softmax_gradient(in[0], in[1], row_dot(in[0], in[1], n), out, n);
  });
}

Status log_softmax_backward(const KernelCall& call) {
  return over_rows<2>(call, [](const auto* const* in, auto* out, int64_t n) {
    log_softmax_gradient(in[0], in[1], row_sum(in[0], n), out, n);
  });
}

}  // namespace shardwise::cpu
