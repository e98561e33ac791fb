// Variance, norms and log-sum-exp, in one pass over memory. Totals are in double; values that would
// overflow or cancel are summed separately.
#include <cmath>

#include "generated/op_params.h"
#include "reduce_engine.h"

namespace shardwise::cpu {

namespace {

// The number of elements, the sum of their distances from a center, and of the squares of these.
struct Moments {
  double count, center, away, squares;
  double mean() const { return center + (count == 0 ? 0 : away / count); }
  // Sum of squares around the mean; rounding errors below 0 become 0.
  double variation() const {
    const double out = count == 0 ? 0 : squares - away * away / count;
    return out < 0 ? 0 : out;
  }
};

template <class T>
inline __attribute__((always_inline)) void add_to_each(Moments* a, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const double away = static_cast<double>(x[i]) - a[i].center;
    a[i].count += 1;
    a[i].away += away;
    a[i].squares += away * away;
  }
}
SW_CLONES SW_ROW(void, add_to_columns, Moments* a, const float* x, int64_t n) {
  add_to_each(a, x, n);
}
SW_CLONES SW_ROW(void, add_to_columns, Moments* a, const double* x, int64_t n) {
  add_to_each(a, x, n);
}

// The deviations of a chunk from a center near its mean, or of a column's run from its first
// element, corrected by their sum. Chunks are merged by the formula of Chan, Golub and LeVeque.
template <class T>
struct Variance {
  static constexpr bool kColumns = true;
  double correction;
  Moments start() const { return {0, 0, 0, 0}; }
  Moments chunk(const Moments& a, const T* x, int64_t n) const {
    const int64_t some = center_count(n);
    const double center = row_wide_sum(x, some) / static_cast<double>(some);
    const Deviations<double> away = row_deviations(x, center, n);
    return combine(a, {static_cast<double>(n), center, away.sum, away.squares});
  }
  void column(Moments* a, const T* x, int64_t n) const {
    if (a->count == 0) {
      for (int64_t i = 0; i < n; i++) a[i] = {1, static_cast<double>(x[i]), 0, 0};
      return;
    }
    add_to_columns(a, x, n);
  }
  Moments combine(const Moments& a, const Moments& b) const {
    if (a.count == 0) return b;
    if (b.count == 0) return a;
    const double count = a.count + b.count, apart = b.mean() - a.mean();
    const double squares =
        a.variation() + b.variation() + apart * apart * (a.count * (b.count / count));
    return {count, a.mean() + apart * (b.count / count), 0, squares};
  }
  std::array<T, 2> finish(const Moments& a, int64_t n) const {
    const double divisor = static_cast<double>(n) - correction;
    return {static_cast<T>(a.variation() / (divisor > 0 ? divisor : 0.0)),
            static_cast<T>(n == 0 ? NAN : a.mean())};
  }
};

template <class T>
struct EuclideanNorm {
  static constexpr bool kColumns = false;
  double start() const { return 0; }
  double chunk(double a, const T* x, int64_t n) const { return a + row_wide_square_sum(x, n); }
  double combine(double a, double b) const { return a + b; }
  std::array<T, 1> finish(double a, int64_t) const { return {static_cast<T>(std::sqrt(a))}; }
};
template <class T>
struct AbsoluteSum {
  static constexpr bool kColumns = false;
  double start() const { return 0; }
  double chunk(double a, const T* x, int64_t n) const { return a + row_wide_abs_sum(x, n); }
  double combine(double a, double b) const { return a + b; }
  std::array<T, 1> finish(double a, int64_t) const { return {static_cast<T>(a)}; }
};
template <class T>
struct LargestAbsolute {
  static constexpr bool kColumns = false;
  T start() const { return 0; }
  T chunk(T a, const T* x, int64_t n) const { return m::maximum(a, row_abs_max(x, n)); }
  T combine(T a, T b) const { return m::maximum(a, b); }
  std::array<T, 1> finish(T a, int64_t) const { return {a}; }
};
template <class T>
struct SmallestAbsolute {
  static constexpr bool kColumns = false;
  T start() const { return static_cast<T>(INFINITY); }
  T chunk(T a, const T* x, int64_t n) const {
    for (int64_t i = 0; i < n; i++) a = m::minimum(a, m::abs(x[i]));
    return a;
  }
  T combine(T a, T b) const { return m::minimum(a, b); }
  std::array<T, 1> finish(T a, int64_t) const { return {a}; }
};
template <class T>
struct PowerNorm {
  static constexpr bool kColumns = false;
  double order;  // 0 counts nonzeros
  double start() const { return 0; }
  double chunk(double a, const T* x, int64_t n) const {
    for (int64_t i = 0; i < n; i++)
      a += order == 0 ? x[i] != T(0) : std::pow(std::fabs(static_cast<double>(x[i])), order);
    return a;
  }
  double combine(double a, double b) const { return a + b; }
  std::array<T, 1> finish(double a, int64_t) const {
    return {static_cast<T>(order == 0 ? a : std::pow(a, 1 / order))};
  }
};

template <class T>
struct LogSumExp {
  static constexpr bool kColumns = false;
  struct A {
    T largest;
    double sum;  // of exp(x - shift_of(largest))
  };
  static T shift_of(T largest) { return std::isinf(largest) ? T(0) : largest; }
  A start() const { return {static_cast<T>(-INFINITY), 0}; }
  A chunk(const A& a, const T* x, int64_t n) const {
    const T largest = row_max(x, n);
    return combine(a, {largest, static_cast<double>(row_exp_sum(x, shift_of(largest), n))});
  }
  A combine(const A& a, const A& b) const {
    const T largest = m::maximum(a.largest, b.largest);
    const double shift = static_cast<double>(shift_of(largest));
    const auto moved = [&](const A& part) {
      return part.sum == 0
                 ? 0
                 : part.sum * std::exp(static_cast<double>(shift_of(part.largest)) - shift);
    };
    return {largest, moved(a) + moved(b)};
  }
  std::array<T, 1> finish(const A& a, int64_t) const {
    return {static_cast<T>(std::log(a.sum) + static_cast<double>(shift_of(a.largest)))};
  }
};

template <template <class> class R, class... P>
Status reduce_floats(const KernelCall& call, P... parameters) {
  with_float_type(call.input(0).dtype, [&](auto type) {
    reduce_with<decltype(type)>(R<decltype(type)>{parameters...}, call);
  });
  return kOk;
}

}  // namespace

Status reduce_var(const KernelCall& call) {
  return reduce_floats<Variance>(call, call.params_as<ReduceVarParams>().correction);
}

Status reduce_norm(const KernelCall& call) {
  const double order = call.params_as<ReduceNormParams>().order;
  if (order == 2) return reduce_floats<EuclideanNorm>(call);
  if (order == 1) return reduce_floats<AbsoluteSum>(call);
  if (order == INFINITY) return reduce_floats<LargestAbsolute>(call);
  if (order == -INFINITY) return reduce_floats<SmallestAbsolute>(call);
  return reduce_floats<PowerNorm>(call, order);
}

Status reduce_logsumexp(const KernelCall& call) { return reduce_floats<LogSumExp>(call); }

}  // namespace shardwise::cpu
