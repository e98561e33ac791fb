// Cross entropy of rows of logits: loss = w[t] (lse - x[t]), with label smoothing as PyTorch mixes it in:
// (1 - s) w[t] (lse - x[t]) + s / n * sum_c w[c] (lse - x[c]).
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

Status check_targets(const KernelCall& call, const TensorView& target, int64_t classes, int64_t ignored) {
  for (int64_t row = 0; row < target.numel; row++) {
    int64_t t;
    gather(target, row, 1, &t);
    if (t != ignored && (t < 0 || t >= classes))
      return fail(call.error, Code::Index, "target %lld at position %lld is not a class: there are %lld", static_cast<long long>(t),
                  static_cast<long long>(row), static_cast<long long>(classes));
  }
  return kOk;
}

template <class T>
std::vector<T> class_weights(const TensorView& view, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n), T(1));
  if (!view.is_immediate) gather(view, 0, n, values.data());
  return values;
}

}  // namespace

Status cross_entropy(const KernelCall& call) {
  const auto& p = call.params_as<CrossEntropyParams>();
  const TensorView &logits = call.input(0), &target = call.input(1);
  const int64_t rows = logits.sizes[0], n = logits.sizes[1], ignored = static_cast<int64_t>(p.ignore_index);
  Status status = check_targets(call, target, n, ignored);
  if (!status.ok()) return status;
  with_float_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const std::vector<T> w = class_weights<T>(call.input(2), n);
    const double weight_sum = row_sum(w.data(), n);
    parallel_for(rows, row_grain(n * 4), [&](int64_t begin, int64_t end) {
      RowBuffer<T> buffer(n);
      for (int64_t row = begin; row < end; row++) {
        int64_t t;
        gather(target, row, 1, &t);
        const T* x = read_row(logits, row, n, buffer.data());
        const T largest = n > 0 ? row_max(x, n) : T(-INFINITY);
        const double lse = static_cast<double>(largest) + std::log(static_cast<double>(row_exp_sum(x, largest, n)));
        double loss = 0;
        if (t != ignored) {
          loss = static_cast<double>(w[t]) * (lse - static_cast<double>(x[t]));
          if (p.label_smoothing > 0) {
            const double spread = weight_sum * lse - static_cast<double>(row_dot(w.data(), x, n));
            loss = (1 - p.label_smoothing) * loss + p.label_smoothing / static_cast<double>(n) * spread;
          }
        }
        const T out[2] = {static_cast<T>(loss), static_cast<T>(lse)};
        scatter(call.output(0), row, 1, out);
        scatter(call.output(1), row, 1, out + 1);
      }
    });
  });
  return kOk;
}

Status cross_entropy_backward(const KernelCall& call) {
  const auto& p = call.params_as<CrossEntropyBackwardParams>();
  const TensorView &grad = call.input(0), &logits = call.input(1), &lse = call.input(2), &target = call.input(3);
  const TensorView& out = call.output(0);
  const int64_t rows = logits.sizes[0], n = logits.sizes[1], ignored = static_cast<int64_t>(p.ignore_index);
  const Status status = check_targets(call, target, n, ignored);
  if (!status.ok()) return status;
  with_float_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const std::vector<T> w = class_weights<T>(call.input(4), n);
    const T weight_sum = row_sum(w.data(), n);
    const T smooth = static_cast<T>(p.label_smoothing);
    parallel_for(rows, row_grain(n * 4), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(2 * n);
      for (int64_t row = begin; row < end; row++) {
        int64_t t;
        T g, shift;
        gather(target, row, 1, &t);
        gather(grad, row, 1, &g);
        gather(lse, row, 1, &shift);
        const T* x = read_row(logits, row, n, memory.data());
        T* y = row_target(out, row, n, memory.data() + n);
        if (t == ignored) {
          for (int64_t i = 0; i < n; i++) y[i] = T(0);
        } else {
          const T each = smooth / static_cast<T>(n);
          const T mass = (T(1) - smooth) * w[t] + each * weight_sum;
          row_exp(x, shift, y, n);
          row_affine(y, g * mass, T(0), y, n);
          if (smooth > T(0)) row_scale_add(w.data(), -g * each, y, n);
          y[t] -= g * (T(1) - smooth) * w[t];
        }
        store_row(out, row, n, y, memory.data() + n);
      }
    });
  });
  return kOk;
}

}  // namespace shardwise::cpu
