// Reductions over the last dims of a view. Sums run in lanes and chunks, so errors grow with the logarithm of the length;
// totals of chunks are kept in double. The result does not depend on the number of threads.
#include <cmath>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

constexpr int64_t kChunk = 2048;

struct Extent {
  int64_t outer, inner;
};

Extent extent_of(const TensorView& x, double reduced_ndim) {
  const int32_t reduced = static_cast<int32_t>(reduced_ndim);
  Extent e{1, 1};
  for (int32_t d = 0; d < x.ndim; d++) (d < x.ndim - reduced ? e.outer : e.inner) *= x.sizes[d];
  return e;
}

// The total of a reduction: wide enough that adding chunk results loses nothing that matters.
template <class T> struct Total { using type = double; };
template <> struct Total<int64_t> { using type = int64_t; };

template <class T> struct Sum {
  static constexpr bool kColumns = true;
  using A = typename Total<T>::type;
  static A start() { return 0; }
  static A chunk(A a, const T* x, int64_t n) { return a + row_sum(x, n); }
  static void column(A* a, const T* x, int64_t n) { for (int64_t i = 0; i < n; i++) a[i] += x[i]; }
  static A combine(A a, A b) { return a + b; }
  static T finish(A a, int64_t) { return static_cast<T>(a); }
};
template <class T> struct Mean : Sum<T> {
  static T finish(typename Sum<T>::A a, int64_t n) { return static_cast<T>(n == 0 ? NAN : a / static_cast<double>(n)); }
};
template <class T> struct Prod {
  static constexpr bool kColumns = true;
  using A = typename Total<T>::type;
  static A start() { return 1; }
  static A chunk(A a, const T* x, int64_t n) { return a * row_prod(x, n); }
  static void column(A* a, const T* x, int64_t n) { for (int64_t i = 0; i < n; i++) a[i] *= x[i]; }
  static A combine(A a, A b) { return a * b; }
  static T finish(A a, int64_t) { return static_cast<T>(a); }
};
template <class T> struct Max {
  static constexpr bool kColumns = true;
  using A = T;
  static A start() { return sizeof(T) == 8 && T(0.5) == T(0) ? static_cast<T>(INT64_MIN) : static_cast<T>(-INFINITY); }
  static A chunk(A a, const T* x, int64_t n) { return m::maximum(a, row_max(x, n)); }
  static void column(A* a, const T* x, int64_t n) { for (int64_t i = 0; i < n; i++) a[i] = m::maximum(a[i], x[i]); }
  static A combine(A a, A b) { return m::maximum(a, b); }
  static T finish(A a, int64_t) { return a; }
};
template <class T> struct Min {
  static constexpr bool kColumns = true;
  using A = T;
  static A start() { return sizeof(T) == 8 && T(0.5) == T(0) ? static_cast<T>(INT64_MAX) : static_cast<T>(INFINITY); }
  static A chunk(A a, const T* x, int64_t n) { return m::minimum(a, row_min(x, n)); }
  static void column(A* a, const T* x, int64_t n) { for (int64_t i = 0; i < n; i++) a[i] = m::minimum(a[i], x[i]); }
  static A combine(A a, A b) { return m::minimum(a, b); }
  static T finish(A a, int64_t) { return a; }
};
template <class T> struct Any {
  static constexpr bool kColumns = false;
  using A = T;
  static A start() { return 0; }
  static A chunk(A a, const T* x, int64_t n) { return a != T(0) || row_any(x, n) != T(0) ? T(1) : T(0); }
  static A combine(A a, A b) { return a != T(0) || b != T(0) ? T(1) : T(0); }
  static T finish(A a, int64_t) { return a; }
};
template <class T> struct All {
  static constexpr bool kColumns = false;
  using A = T;
  static A start() { return 1; }
  static A chunk(A a, const T* x, int64_t n) {
    if (a == T(0)) return a;
    for (int64_t i = 0; i < n; i++)
      if (x[i] == T(0)) return 0;
    return 1;
  }
  static A combine(A a, A b) { return a != T(0) && b != T(0) ? T(1) : T(0); }
  static T finish(A a, int64_t) { return a; }
};

template <class T, class R>
void reduce_one(const TensorView& x, const TensorView& y, int64_t row, int64_t inner) {
  T buffer[kChunk];
  const bool direct = x.dtype == dtype_of<T>() && x.is_contiguous();
  auto total = R::start();
  for (int64_t at = 0; at < inner; at += kChunk) {
    const int64_t n = inner - at < kChunk ? inner - at : kChunk;
    const T* run = buffer;
    if (direct) run = static_cast<const T*>(x.data) + row * inner + at;
    else gather(x, row * inner + at, n, buffer);
    total = R::chunk(total, run, n);
  }
  const T result = R::finish(total, inner);
  scatter(y, row, 1, &result);
}

// Leading dims reduced of a [rows, columns] matrix whose columns lie side by side: whole runs of columns at a time, and in runs of
// rows, whose results are combined, so that a long sum in double does not gather one rounding error a row.
template <class T, class R>
void reduce_columns(const TensorView& x, const TensorView& y, const Extent& e) {
  const int64_t row_stride = x.strides[1];
  parallel_for(e.outer, 512, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 512, kRun = 1024;
    T buffer[kBlock];
    typename R::A acc[kBlock], run_acc[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = end - at < kBlock ? end - at : kBlock;
      for (int64_t i = 0; i < n; i++) acc[i] = R::start();
      for (int64_t r = 0; r < e.inner; r++) {
        if (r % kRun == 0) {
          if (r > 0) for (int64_t i = 0; i < n; i++) acc[i] = R::combine(acc[i], run_acc[i]);
          for (int64_t i = 0; i < n; i++) run_acc[i] = R::start();
        }
        const char* from = element_at(x.data, x.dtype, at + r * row_stride);
        const T* run = buffer;
        if (x.dtype == dtype_of<T>()) run = reinterpret_cast<const T*>(from);
        else gather(x.dtype, from, 1, buffer, n);
        R::column(run_acc, run, n);
      }
      for (int64_t i = 0; i < n; i++) buffer[i] = R::finish(R::combine(acc[i], run_acc[i]), e.inner);
      scatter(y, at, n, buffer);
    }
  });
}

// One long row, split at fixed places so that threads share it; the parts are combined in order.
template <class T, class R>
bool reduce_whole(const TensorView& x, const TensorView& y, int64_t inner) {
  constexpr int64_t kPart = 1 << 16;
  if (inner < 2 * kPart || !(x.dtype == dtype_of<T>() && x.is_contiguous())) return false;
  const int64_t parts = (inner + kPart - 1) / kPart;
  std::vector<typename R::A> partial(parts);
  const T* data = static_cast<const T*>(x.data);
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      auto total = R::start();
      const int64_t last = (p + 1) * kPart < inner ? (p + 1) * kPart : inner;
      for (int64_t at = p * kPart; at < last; at += kChunk) total = R::chunk(total, data + at, last - at < kChunk ? last - at : kChunk);
      partial[p] = total;
    }
  });
  auto total = partial[0];
  for (int64_t p = 1; p < parts; p++) total = R::combine(total, partial[p]);
  const T result = R::finish(total, inner);
  scatter(y, 0, 1, &result);
  return true;
}

template <template <class> class R>
Status reduce(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  const Extent e = extent_of(x, call.params[0]);
  if (e.outer == 0) return kOk;
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    if (e.outer == 1 && reduce_whole<T, R<T>>(x, y, e.inner)) return;
    if constexpr (R<T>::kColumns) {
      const bool columns = x.ndim == 2 && call.params[0] == 1 && x.strides[0] == 1 && x.strides[1] >= 1 && e.outer > 1 && e.inner > 0;
      if (columns) return reduce_columns<T, R<T>>(x, y, e);
    }
    parallel_for(e.outer, row_grain(e.inner), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) reduce_one<T, R<T>>(x, y, row, e.inner);
    });
  });
  return kOk;
}

// Calls fn(row buffer, n) on every whole row; for reductions that look at a row twice.
template <class F>
Status over_rows(const KernelCall& call, F&& fn) {
  const TensorView& x = call.input(0);
  const Extent e = extent_of(x, call.params[0]);
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(e.outer, row_grain(e.inner), [&](int64_t begin, int64_t end) {
      RowBuffer<T> buffer(e.inner + 1);
      for (int64_t row = begin; row < end; row++) fn(row, read_row(x, row, e.inner, buffer.data()), e.inner);
    });
  });
  return kOk;
}

template <bool Largest>
Status arg_reduce(const KernelCall& call) {
  const TensorView& y = call.output(0);
  return over_rows(call, [&](int64_t row, const auto* x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n && x[best] == x[best]; i++)
      if (x[i] != x[i] || (Largest ? x[i] > x[best] : x[i] < x[best])) best = i;
    scatter(y, row, 1, &best);
  });
}

template <class T>
double norm_of(const T* x, int64_t n, double order) {
  if (order == 2) {
    // In double only where the squares of a chunk would leave the range of float.
    const double largest = n ? static_cast<double>(row_abs_max(x, n)) : 0;
    double total = 0;
    if (sizeof(T) == 4 && (largest > 1e17 || (largest > 0 && largest < 1e-17))) {
      for (int64_t i = 0; i < n; i++) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    } else {
      for (int64_t at = 0; at < n; at += kChunk) total += row_square_sum(x + at, T(0), n - at < kChunk ? n - at : kChunk);
    }
    return std::sqrt(total);
  }
  if (order == 1) return row_abs_sum(x, n);
  if (order == INFINITY) return n ? row_abs_max(x, n) : 0;
  double total = order == -INFINITY ? INFINITY : 0;
  for (int64_t i = 0; i < n; i++) {
    const double v = std::fabs(static_cast<double>(x[i]));
    if (order == 0) total += v != 0;
    else if (order == -INFINITY) total = v != v ? v : (v < total || total != total ? (total != total ? total : v) : total);
    else total += std::pow(v, order);
  }
  return order == 0 || order == -INFINITY ? total : std::pow(total, 1 / order);
}

template <class T>
void store(const TensorView& y, int64_t row, double value) {
  const T v = static_cast<T>(value);
  scatter(y, row, 1, &v);
}

}  // namespace

Status reduce_sum(const KernelCall& call) { return reduce<Sum>(call); }
Status reduce_mean(const KernelCall& call) { return reduce<Mean>(call); }
Status reduce_prod(const KernelCall& call) { return reduce<Prod>(call); }
Status reduce_amax(const KernelCall& call) { return reduce<Max>(call); }
Status reduce_amin(const KernelCall& call) { return reduce<Min>(call); }
Status reduce_any(const KernelCall& call) { return reduce<Any>(call); }
Status reduce_all(const KernelCall& call) { return reduce<All>(call); }
Status reduce_argmax(const KernelCall& call) { return arg_reduce<true>(call); }
Status reduce_argmin(const KernelCall& call) { return arg_reduce<false>(call); }

Status reduce_var(const KernelCall& call) {
  const double correction = call.params_as<ReduceVarParams>().correction;
  const TensorView &var = call.output(0), &mean = call.output(1);
  return over_rows(call, [&](int64_t row, const auto* x, int64_t n) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(x)>>;
    if constexpr (!std::is_same_v<T, int64_t>) {
      double squares = 0;
      const double center = row_mean(x, n);
      for (int64_t at = 0; at < n; at += kChunk) squares += row_square_sum(x + at, static_cast<T>(center), n - at < kChunk ? n - at : kChunk);
      const double divisor = static_cast<double>(n) - correction;
      store<T>(var, row, squares / (divisor > 0 ? divisor : 0.0));
      store<T>(mean, row, center);
    }
  });
}

Status reduce_norm(const KernelCall& call) {
  const double order = call.params_as<ReduceNormParams>().order;
  return over_rows(call, [&](int64_t row, const auto* x, int64_t n) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(x)>>;
    if constexpr (!std::is_same_v<T, int64_t>) store<T>(call.output(0), row, norm_of(x, n, order));
  });
}

Status reduce_logsumexp(const KernelCall& call) {
  return over_rows(call, [&](int64_t row, const auto* x, int64_t n) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(x)>>;
    if constexpr (!std::is_same_v<T, int64_t>) {
      const T largest = n ? row_max(x, n) : T(-INFINITY);
      const T shift = std::isinf(largest) ? T(0) : largest;
      store<T>(call.output(0), row, std::log(static_cast<double>(row_exp_sum(x, shift, n))) + static_cast<double>(shift));
    }
  });
}

}  // namespace shardwise::cpu
