// Reductions to one value of the input's kind: sum, mean, prod, amax, amin, any, all; argmax and
// argmin.
#include <cmath>

#include "reduce_engine.h"
#include "row_buffer.h"

namespace shardwise::cpu {

namespace {

// The total of a reduction: wide enough for sums of chunk results.
template <class T>
struct Total {
  using type = double;
};
template <>
struct Total<int64_t> {
  using type = int64_t;
};

template <class T>
constexpr bool kIsInteger = std::is_same_v<T, int64_t>;

template <class T>
struct Sum {
  static constexpr bool kColumns = true;
  using A = typename Total<T>::type;
  A start() const { return 0; }
  A chunk(A a, const T* x, int64_t n) const { return a + row_sum(x, n); }
  A combine(A a, A b) const { return a + b; }
  void column(A* a, const T* x, int64_t n) const { row_wide_add(x, a, n); }
  std::array<T, 1> finish(A a, int64_t) const { return {static_cast<T>(a)}; }
};
template <class T>
struct Mean : Sum<T> {
  std::array<T, 1> finish(typename Sum<T>::A a, int64_t n) const {
    return {static_cast<T>(n == 0 ? NAN : a / static_cast<double>(n))};
  }
};
template <class T>
struct Prod {
  static constexpr bool kColumns = true;
  using A = typename Total<T>::type;
  A start() const { return 1; }
  A chunk(A a, const T* x, int64_t n) const { return a * row_prod(x, n); }
  A combine(A a, A b) const { return a * b; }
  void column(A* a, const T* x, int64_t n) const {
    for (int64_t i = 0; i < n; i++) a[i] *= x[i];
  }
  std::array<T, 1> finish(A a, int64_t) const { return {static_cast<T>(a)}; }
};
template <class T>
struct Max {
  static constexpr bool kColumns = true;
  T start() const { return kIsInteger<T> ? static_cast<T>(INT64_MIN) : static_cast<T>(-INFINITY); }
  T chunk(T a, const T* x, int64_t n) const { return m::maximum(a, row_max(x, n)); }
  T combine(T a, T b) const { return m::maximum(a, b); }
  void column(T* a, const T* x, int64_t n) const {
    for (int64_t i = 0; i < n; i++) a[i] = m::maximum(a[i], x[i]);
  }
  std::array<T, 1> finish(T a, int64_t) const { return {a}; }
};
template <class T>
struct Min {
  static constexpr bool kColumns = true;
  T start() const { return kIsInteger<T> ? static_cast<T>(INT64_MAX) : static_cast<T>(INFINITY); }
  T chunk(T a, const T* x, int64_t n) const { return m::minimum(a, row_min(x, n)); }
  T combine(T a, T b) const { return m::minimum(a, b); }
  void column(T* a, const T* x, int64_t n) const {
    for (int64_t i = 0; i < n; i++) a[i] = m::minimum(a[i], x[i]);
  }
  std::array<T, 1> finish(T a, int64_t) const { return {a}; }
};
template <class T>
struct Any {
  static constexpr bool kColumns = false;
  bool start() const { return false; }
  bool chunk(bool a, const T* x, int64_t n) const { return a || row_any(x, n) != T(0); }
  bool combine(bool a, bool b) const { return a || b; }
  std::array<T, 1> finish(bool a, int64_t) const { return {static_cast<T>(a)}; }
};
template <class T>
struct All {
  static constexpr bool kColumns = false;
  bool start() const { return true; }
  bool chunk(bool a, const T* x, int64_t n) const {
    for (int64_t i = 0; a && i < n; i++) a = x[i] != T(0);
    return a;
  }
  bool combine(bool a, bool b) const { return a && b; }
  std::array<T, 1> finish(bool a, int64_t) const { return {static_cast<T>(a)}; }
};

template <template <class> class R>
Status reduce(const KernelCall& call) {
  with_compute_type(call.input(0).dtype,
                    [&](auto type) { reduce_with<decltype(type)>(R<decltype(type)>{}, call); });
  return kOk;
}

template <bool Largest>
Status arg_reduce(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  const Extent e = extent_of(x, call.params[0]);
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(e.outer, row_grain(e.inner), [&](int64_t begin, int64_t end) {
      RowBuffer<T> buffer(e.inner + 1);
      for (int64_t row = begin; row < end; row++) {
        const T* in = read_row(x, row, e.inner, buffer.data());
        int64_t best = 0;
        for (int64_t i = 1; i < e.inner && in[best] == in[best]; i++)
          if (in[i] != in[i] || (Largest ? in[i] > in[best] : in[i] < in[best])) best = i;
        scatter(y, row, 1, &best);
      }
    });
  });
  return kOk;
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

}  // namespace shardwise::cpu
