// Cross entropy of rows of logits, with the label smoothing of PyTorch: the label of class c is
// l[c] = w[c] ((1 - s) [c = t] + s / n), mass the sum of l and score that of l x. The loss is
// mass lse - score, its gradient g (mass softmax(x) - l), from lse or from the same read of a row.
// lse and score are taken relative to the largest logit, because they cancel where logits are large.
// Logits of some classes give the lse and the score of these in float64, or their gradient.
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

// An element, of a number too. Not inlined: rows are long, and the conversions of dtypes are large.
template <class T>
[[gnu::noinline]] T value_at(const TensorView& view, int64_t i) {
  if (view.is_immediate) return static_cast<T>(view.scalar);
  T value;
  gather(view, i, 1, &value);
  return value;
}
template <class T>
[[gnu::noinline]] void put(const TensorView& view, int64_t i, T value) {
  scatter(view, i, 1, &value);
}

Status check_targets(const KernelCall& call, const TensorView& target, int64_t classes,
                     int64_t ignored) {
  for (int64_t row = 0; row < target.numel; row++) {
    const int64_t t = value_at<int64_t>(target, row);
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

// Shared by all rows: class weights, label smoothing, and the classes of the logits.
template <class T>
struct Classes {
  const int64_t n, first, ignored;   // the columns of the logits are the classes first to first + n
  const std::vector<T> w;            // of all classes
  const double weight_sum, own_sum;  // of all classes, of the columns
  const double smooth, each;         // `each`: the label that smoothing adds to every class

  Classes(const TensorView& weight, int64_t columns, int64_t first_class, int64_t all,
          double smoothing, double ignore_index)
      : n(columns),
        first(first_class),
        ignored(static_cast<int64_t>(ignore_index)),
        w(class_weights<T>(weight, all)),
        weight_sum(row_wide_sum(w.data(), all)),
        own_sum(row_wide_sum(w.data() + first, columns)),
        smooth(smoothing),
        each(smoothing / static_cast<double>(all)) {}

  bool has(int64_t t) const { return t >= first && t < first + n; }

  // The label of the target itself, and the sums of the labels of all classes and of the columns.
  double hit(int64_t t) const { return (1 - smooth) * static_cast<double>(w[t]); }
  double mass(int64_t t) const { return hit(t) + each * weight_sum; }
  double own_mass(int64_t t) const { return (has(t) ? hit(t) : 0) + each * own_sum; }

  // The sum of the logits, less `base`, times their labels. Overwrites y.
  double score(const T* x, T base, int64_t t, T* y) const {
    double sum = 0;
    if (has(t)) sum = hit(t) * (static_cast<double>(x[t - first]) - static_cast<double>(base));
    if (smooth > 0) {
      row_affine(x, T(1), -base, y, n);
      sum += each * static_cast<double>(row_dot(w.data() + first, y, n));
    }
    return sum;
  }

  // y = g (mass softmax(x) - labels); 0 for an ignored target.
  void gradient(const T* x, T lse, int64_t t, T g, T* y) const {
    if (t == ignored) {
      for (int64_t i = 0; i < n; i++) y[i] = T(0);
      return;
    }
    row_exp(x, lse, y, n);
    row_affine(y, g * static_cast<T>(mass(t)), T(0), y, n);
    if (smooth > 0) row_scale_add(w.data() + first, -g * static_cast<T>(each), y, n);
    if (has(t)) y[t - first] -= g * static_cast<T>(hit(t));
  }
};

// The largest logit, or 0 if all are -inf, and the lse less this.
template <class T>
struct LogSum {
  T base = T(0);
  double rest = -INFINITY;

  LogSum(const T* x, int64_t n) {
    const T largest = n > 0 ? row_max(x, n) : T(-INFINITY);
    if (largest == T(-INFINITY)) return;
    base = largest;
    rest = std::log(static_cast<double>(row_exp_sum(x, base, n)));
  }
  double lse() const { return static_cast<double>(base) + rest; }
};

// What a call computes for each row, and the classes of its logits.
struct Forward {
  int64_t first, classes;
  double smoothing, ignore_index;
  bool scores;  // instead of losses
  const TensorView &value, &lse;
  const TensorView* gradient = nullptr;

  // The loss or the score of a row with the logits x. Overwrites y.
  template <class T>
  double value_of(const Classes<T>& labels, const T* x, const LogSum<T>& sum, int64_t t,
                  T* y) const {
    if (t == labels.ignored) return 0;
    const double score = labels.score(x, sum.base, t, y);
    return scores ? score + static_cast<double>(sum.base) * labels.own_mass(t)
                  : labels.mass(t) * sum.rest - score;
  }
};

Status forward(const KernelCall& call, const Forward& f) {
  const TensorView &logits = call.input(0), &target = call.input(1);
  const int64_t rows = logits.sizes[0], n = logits.sizes[1];
  const Status status =
      check_targets(call, target, f.classes, static_cast<int64_t>(f.ignore_index));
  if (!status.ok()) return status;
  with_float_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const Classes<T> classes(call.input(2), n, f.first, f.classes, f.smoothing, f.ignore_index);
    T scale = T(1);
    if (f.gradient && rows > 0) scale = value_at<T>(call.input(3), 0);
    parallel_for(rows, row_grain(n * 4), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(2 * n);
      for (int64_t row = begin; row < end; row++) {
        const int64_t t = value_at<int64_t>(target, row);
        const T* x = read_row(logits, row, n, memory.data());
        const LogSum<T> sum(x, n);
        const double value = f.value_of(classes, x, sum, t, memory.data() + n);
        put(f.value, row, static_cast<double>(scale) * value);
        put(f.lse, row, sum.lse());
        if (!f.gradient) continue;
        T* y = row_target(*f.gradient, row, n, memory.data() + n);
        classes.gradient(x, static_cast<T>(sum.lse()), t, scale, y);
        store_row(*f.gradient, row, n, y, memory.data() + n);
      }
    });
  });
  return kOk;
}

}  // namespace

// Inputs logits, target, weight; outputs loss, lse. A fourth input, a scale of the losses (a
// number, or one element), adds the gradient of their sum as a third output.
Status cross_entropy(const KernelCall& call) {
  const auto& p = call.params_as<CrossEntropyParams>();
  return forward(
      call, {0, call.input(0).sizes[1], p.label_smoothing, p.ignore_index, false, call.output(0),
             call.output(1), call.num_inputs > 3 ? &call.output(2) : nullptr});
}

// Inputs logits of some classes, target, weight of all; outputs their lse and score.
Status cross_entropy_statistics(const KernelCall& call) {
  const auto& p = call.params_as<CrossEntropyStatisticsParams>();
  return forward(call, {static_cast<int64_t>(p.first_class), static_cast<int64_t>(p.classes),
                        p.label_smoothing, p.ignore_index, true, call.output(1), call.output(0)});
}

Status cross_entropy_backward(const KernelCall& call) {
  const auto& p = call.params_as<CrossEntropyBackwardParams>();
  const TensorView &grad = call.input(0), &logits = call.input(1), &lse = call.input(2),
                   &target = call.input(3);
  const TensorView& out = call.output(0);
  const int64_t rows = logits.sizes[0], n = logits.sizes[1];
  const auto all = static_cast<int64_t>(p.classes), first = static_cast<int64_t>(p.first_class);
  const Status status = check_targets(call, target, all, static_cast<int64_t>(p.ignore_index));
  if (!status.ok()) return status;
  with_float_type(logits.dtype, [&](auto type) {
    using T = decltype(type);
    const Classes<T> classes(call.input(4), n, first, all, p.label_smoothing, p.ignore_index);
    parallel_for(rows, row_grain(n * 4), [&](int64_t begin, int64_t end) {
      RowBuffer<T> memory(2 * n);
      for (int64_t row = begin; row < end; row++) {
        const int64_t t = value_at<int64_t>(target, row);
        const T g = value_at<T>(grad, row), shift = value_at<T>(lse, row);
        T* y = row_target(out, row, n, memory.data() + n);
        classes.gradient(read_row(logits, row, n, memory.data()), shift, t, g, y);
        store_row(out, row, n, y, memory.data() + n);
      }
    });
  });
  return kOk;
}

}  // namespace shardwise::cpu
