// Cross entropy of rows of logits: loss = w[t] (lse - x[t]), with label smoothing as in PyTorch: (1
// - s) w[t] (lse - x[t]) + s / n * sum_c w[c] (lse - x[c]). The gradient needs lse, or comes with
// the loss from one read of a row.
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

Status check_targets(const KernelCall& call, const TensorView& target, int64_t classes,
                     int64_t ignored) {
  for (int64_t row = 0; row < target.numel; row++) {
    int64_t t;
    gather(target, row, 1, &t);
    if (t != ignored && (t < 0 || t >= classes))
      return fail(
          call.error, Code::Index, "target %lld at position %lld is not a class: there are %lld",
          static_cast<long long>(t), static_cast<long long>(row), static_cast<long long>(classes));
  }
  return kOk;
}

template <class T>
std::vector<T> class_weights(const TensorView& view, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n), T(1));
  if (!view.is_immediate) gather(view, 0, n, values.data());
  return values;
}

// The value of a number, or of a tensor of one element.
template <class T>
T number_of(const TensorView& view) {
  if (view.is_immediate) return static_cast<T>(view.scalar);
  T value;
  gather(view, 0, 1, &value);
  return value;
}

// Shared by all rows: class weights and label smoothing.
template <class T>
struct Classes {
  const int64_t n, ignored;
  const std::vector<T> w;
  const T weight_sum, smooth, each;  // `each`: the label that smoothing adds to every class

  Classes(const TensorView& weight, int64_t classes, double smoothing, double ignore_index)
      : n(classes),
        ignored(static_cast<int64_t>(ignore_index)),
        w(class_weights<T>(weight, classes)),
        weight_sum(row_sum(w.data(), classes)),
        smooth(static_cast<T>(smoothing)),
        each(smooth / static_cast<T>(classes)) {}

  double loss(const T* x, double lse, int64_t t) const {
    const double own = static_cast<double>(w[t]) * (lse - static_cast<double>(x[t]));
    if (smooth == T(0)) return own;
    const double spread =
        static_cast<double>(weight_sum) * lse - static_cast<double>(row_dot(w.data(), x, n));
    return (1 - static_cast<double>(smooth)) * own + static_cast<double>(each) * spread;
  }

  // y = g (mass of the labels * softmax(x) - labels); 0 for an ignored target.
  void gradient(const T* x, T lse, int64_t t, T g, T* y) const {
    if (t == ignored) {
      for (int64_t i = 0; i < n; i++) y[i] = T(0);
      return;
    }
    const T mass = (T(1) - smooth) * w[t] + each * weight_sum;
    row_exp(x, lse, y, n);
    row_affine(y, g * mass, T(0), y, n);
    if (smooth > T(0)) row_scale_add(w.data(), -g * each, y, n);
    y[t] -= g * (T(1) - smooth) * w[t];
  }
};

}  // namespace

// Inputs logits, target, weight; outputs loss, lse. A fourth input, a scale of the losses (a
// number, or one element), adds the gradient of their sum as a third output.
Status cross_entropy(const KernelCall& call) {
  const auto& p = call.params_as<CrossEntropyParams>();
  const TensorView &logits = call.input(0), &target = call.input(1);
  const int64_t rows = logits.sizes[0], n = logits.sizes[1];
  const bool with_gradient = call.num_inputs > 3;
  const Status status = check_targets(call, target, n, static_cast<int64_t>(p.ignore_index));
  if (!status.ok()) return status;
  with_float_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const Classes<T> classes(call.input(2), n, p.label_smoothing, p.ignore_index);
    T scale = T(1);
    if (with_gradient && rows > 0) scale = number_of<T>(call.input(3));
    parallel_for(rows, row_grain(n * 4), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(2 * n);
      for (int64_t row = begin; row < end; row++) {
        int64_t t;
        gather(target, row, 1, &t);
        const T* x = read_row(logits, row, n, memory.data());
        const T largest = n > 0 ? row_max(x, n) : T(-INFINITY);
        const double lse = static_cast<double>(largest) +
                           std::log(static_cast<double>(row_exp_sum(x, largest, n)));
        const double loss = t == classes.ignored ? 0 : classes.loss(x, lse, t);
        const T out[2] = {static_cast<T>(static_cast<double>(scale) * loss), static_cast<T>(lse)};
        scatter(call.output(0), row, 1, out);
        scatter(call.output(1), row, 1, out + 1);
        if (!with_gradient) continue;
        T* y = row_target(call.output(2), row, n, memory.data() + n);
        classes.gradient(x, out[1], t, scale, y);
        store_row(call.output(2), row, n, y, memory.data() + n);
      }
    });
  });
  return kOk;
}

Status cross_entropy_backward(const KernelCall& call) {
  const auto& p = call.params_as<CrossEntropyBackwardParams>();
  const TensorView &grad = call.input(0), &logits = call.input(1), &lse = call.input(2),
                   &target = call.input(3);
  const TensorView& out = call.output(0);
  const int64_t rows = logits.sizes[0], n = logits.sizes[1];
  const Status status = check_targets(call, target, n, static_cast<int64_t>(p.ignore_index));
  if (!status.ok()) return status;
  with_float_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const Classes<T> classes(call.input(4), n, p.label_smoothing, p.ignore_index);
    parallel_for(rows, row_grain(n * 4), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(2 * n);
      for (int64_t row = begin; row < end; row++) {
        int64_t t;
        T g, shift;
        gather(target, row, 1, &t);
        gather(grad, row, 1, &g);
        gather(lse, row, 1, &shift);
        T* y = row_target(out, row, n, memory.data() + n);
        classes.gradient(read_row(logits, row, n, memory.data()), shift, t, g, y);
        store_row(out, row, n, y, memory.data() + n);
      }
    });
  });
  return kOk;
}

}  // namespace shardwise::cpu
