// Inner loops over one contiguous run, compiled for three instruction sets and chosen when the
// addon is loaded.
#pragma once
#include <cstdint>
#include <type_traits>

#include "convert.h"
#include "math.h"
#include "parallel_for.h"

// Only glibc's loader chooses between clones, and Clang makes none of functions that may be unused.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define SW_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SW_CLONES
#endif

namespace shardwise::cpu {
namespace {

// independent partial results, so that the loop vectorises and rounding errors stay small
constexpr int64_t kLanes = 32;

// Combines a run by an associative op in kLanes partial results, then those pairwise.
template <class T, class Load, class Combine>
inline __attribute__((always_inline)) T fold(int64_t n, T start, Load load, Combine combine) {
  T lanes[kLanes];
  for (int64_t k = 0; k < kLanes; k++) lanes[k] = start;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; k++) lanes[k] = combine(lanes[k], load(i + k));
  for (int64_t k = 0; i < n; i++, k++) lanes[k] = combine(lanes[k], load(i));
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; k++) lanes[k] = combine(lanes[k], lanes[k + half]);
  return lanes[0];
}

// The number of elements, of n, whose mean serves as center. The mean of k of them is within sqrt(n
// / k) standard deviations of the mean of all, so correcting for it costs at most log2(n / k) bits:
// here three.
constexpr int64_t center_count(int64_t n) {
  return n < 8 * kLanes ? (n < kLanes ? n : kLanes) : n / 8;
}

// Sums of x - center and of its square. The first gives the distance of the center from the mean,
// which corrects the second.
template <class A>
struct Deviations {
  A sum, squares;
};

template <class A, class T>
inline __attribute__((always_inline)) Deviations<A> deviations(const T* x, A center, int64_t n) {
  A sums[kLanes] = {}, squares[kLanes] = {};
  const auto add = [&](int64_t k, A deviation) {
    sums[k] += deviation;
    squares[k] += deviation * deviation;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; k++) add(k, static_cast<A>(x[i + k]) - center);
  for (int64_t k = 0; i < n; i++, k++) add(k, static_cast<A>(x[i]) - center);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; k++) {
      sums[k] += sums[k + half];
      squares[k] += squares[k + half];
    }
  return {sums[0], squares[0]};
}

// ---- the loops, as templates

namespace rows {

#define SW_LOOP      \
  template <class T> \
  inline __attribute__((always_inline))

SW_LOOP T sum(const T* x, int64_t n) {
  return fold<T>(
      n, T(0), [=](int64_t i) { return x[i]; }, [](T a, T b) { return a + b; });
}
SW_LOOP T prod(const T* x, int64_t n) {
  return fold<T>(
      n, T(1), [=](int64_t i) { return x[i]; }, [](T a, T b) { return a * b; });
}
SW_LOOP T max(const T* x, int64_t n) {
  return fold<T>(
      n, x[0], [=](int64_t i) { return x[i]; }, [](T a, T b) { return m::maximum(a, b); });
}
SW_LOOP T min(const T* x, int64_t n) {
  return fold<T>(
      n, x[0], [=](int64_t i) { return x[i]; }, [](T a, T b) { return m::minimum(a, b); });
}
SW_LOOP T any(const T* x, int64_t n) {
  return fold<T>(
      n, T(0), [=](int64_t i) { return T(x[i] != T(0)); }, [](T a, T b) { return a > b ? a : b; });
}
SW_LOOP T dot(const T* x, const T* y, int64_t n) {
  return fold<T>(
      n, T(0), [=](int64_t i) { return x[i] * y[i]; }, [](T a, T b) { return a + b; });
}
SW_LOOP T square_sum(const T* x, T mean, int64_t n) {
  return fold<T>(
      n, T(0), [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); },
      [](T a, T b) { return a + b; });
}
// The wide sums are double: squares of a float exceed its range.
SW_LOOP double wide_sum(const T* x, int64_t n) {
  return fold<double>(
      n, 0, [=](int64_t i) { return static_cast<double>(x[i]); },
      [](double a, double b) { return a + b; });
}
SW_LOOP double wide_square_sum(const T* x, int64_t n) {
  const auto square = [=](int64_t i) {
    return static_cast<double>(x[i]) * static_cast<double>(x[i]);
  };
  return fold<double>(n, 0, square, [](double a, double b) { return a + b; });
}
SW_LOOP double wide_abs_sum(const T* x, int64_t n) {
  const auto size = [=](int64_t i) { return static_cast<double>(m::abs(x[i])); };
  return fold<double>(n, 0, size, [](double a, double b) { return a + b; });
}
SW_LOOP void wide_add(const T* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += static_cast<double>(x[i]);
}
SW_LOOP T abs_max(const T* x, int64_t n) {
  return fold<T>(
      n, T(0), [=](int64_t i) { return m::abs(x[i]); }, [](T a, T b) { return m::maximum(a, b); });
}
SW_LOOP T exp_sum(const T* x, T shift, int64_t n) {
  return fold<T>(
      n, T(0), [=](int64_t i) { return m::exp(x[i] - shift); }, [](T a, T b) { return a + b; });
}
// y = exp(x - shift); returns the sum.
SW_LOOP T exp(const T* x, T shift, T* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = m::exp(x[i] - shift);
  return fold<T>(
      n, T(0), [=](int64_t i) { return y[i]; }, [](T a, T b) { return a + b; });
}
SW_LOOP void affine(const T* x, T scale, T shift, T* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale + shift;
}
SW_LOOP void scale_add(const T* x, T scale, T* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i] * scale;
}
// y = ((x - mean) * rstd - residual) * w + b; w and b may be null. `residual` is the rounding error
// of mean, times rstd.
SW_LOOP void normalize(const T* x, T mean, T rstd, T residual, const T* w, const T* b, T* y,
                       int64_t n) {
  if (w && b)
    for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - mean) * rstd - residual) * w[i] + b[i];
  else if (w)
    for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - mean) * rstd - residual) * w[i];
  else if (b)
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd - residual + b[i];
  else
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd - residual;
}

#undef SW_LOOP

}  // namespace rows

// ---- the loops for each instruction set

// target_clones does not apply to templates, so each type gets functions that inline them.
#define SW_ROW(type, name, ...) [[maybe_unused]] SW_CLONES static type name(__VA_ARGS__)

// clang-format off
#define SW_ROW_FUNCTIONS(T)                                                                     \
  SW_ROW(T, row_sum, const T* x, int64_t n) { return rows::sum(x, n); }                         \
  SW_ROW(T, row_prod, const T* x, int64_t n) { return rows::prod(x, n); }                       \
  SW_ROW(T, row_max, const T* x, int64_t n) { return rows::max(x, n); }                         \
  SW_ROW(T, row_min, const T* x, int64_t n) { return rows::min(x, n); }                         \
  SW_ROW(T, row_any, const T* x, int64_t n) { return rows::any(x, n); }

#define SW_FLOAT_ROW_FUNCTIONS(T)                                                               \
  SW_ROW(T, row_dot, const T* x, const T* y, int64_t n) { return rows::dot(x, y, n); }          \
  SW_ROW(T, row_square_sum, const T* x, T mean, int64_t n) {                                    \
    return rows::square_sum(x, mean, n);                                                        \
  }                                                                                             \
  SW_ROW(double, row_wide_sum, const T* x, int64_t n) { return rows::wide_sum(x, n); }          \
  SW_ROW(double, row_wide_square_sum, const T* x, int64_t n) {                                  \
    return rows::wide_square_sum(x, n);                                                         \
  }                                                                                             \
  SW_ROW(double, row_wide_abs_sum, const T* x, int64_t n) { return rows::wide_abs_sum(x, n); }  \
  SW_ROW(void, row_wide_add, const T* x, double* y, int64_t n) { rows::wide_add(x, y, n); }     \
  SW_ROW(T, row_abs_max, const T* x, int64_t n) { return rows::abs_max(x, n); }                 \
  SW_ROW(T, row_exp_sum, const T* x, T shift, int64_t n) { return rows::exp_sum(x, shift, n); } \
  SW_ROW(T, row_exp, const T* x, T shift, T* y, int64_t n) {                                    \
    return rows::exp(x, shift, y, n);                                                           \
  }                                                                                             \
  SW_ROW(void, row_affine, const T* x, T scale, T shift, T* y, int64_t n) {                     \
    rows::affine(x, scale, shift, y, n);                                                        \
  }                                                                                             \
  SW_ROW(void, row_scale_add, const T* x, T scale, T* y, int64_t n) {                           \
    rows::scale_add(x, scale, y, n);                                                            \
  }                                                                                             \
  SW_ROW(void, row_normalize, const T* x, T mean, T rstd, T residual, const T* w, const T* b,   \
         T* y, int64_t n) {                                                                     \
    rows::normalize(x, mean, rstd, residual, w, b, y, n);                                       \
  }
// clang-format on

SW_ROW_FUNCTIONS(float)
SW_ROW_FUNCTIONS(double)
SW_ROW_FUNCTIONS(int64_t)
SW_FLOAT_ROW_FUNCTIONS(float)
SW_FLOAT_ROW_FUNCTIONS(double)
SW_ROW(void, row_wide_add, const int64_t* x, int64_t* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

SW_ROW(Deviations<float>, row_deviations, const float* x, float center, int64_t n) {
  return deviations(x, center, n);
}
SW_ROW(Deviations<double>, row_deviations, const float* x, double center, int64_t n) {
  return deviations(x, center, n);
}
SW_ROW(Deviations<double>, row_deviations, const double* x, double center, int64_t n) {
  return deviations(x, center, n);
}

template <class T>
void row_scale_add_any(const T* x, T scale, T* y, int64_t n) {
  if constexpr (std::is_same_v<T, int64_t>) {
    for (int64_t i = 0; i < n; i++) y[i] += x[i] * scale;
  } else {
    row_scale_add(x, scale, y, n);
  }
}

// Calls body with a value of the compute type of a dtype: float, double or int64_t.
template <class F>
auto with_compute_type(DType dtype, F&& body) {
  if (dtype == DType::Float64) return body(double{});
  if (is_floating(dtype)) return body(float{});
  return body(int64_t{});
}

template <class F>
auto with_float_type(DType dtype, F&& body) {
  return dtype == DType::Float64 ? body(double{}) : body(float{});
}

template <class T>
constexpr DType dtype_of() {
  return sizeof(T) == 4 ? DType::Float32 : (T(0.5) != T(0) ? DType::Float64 : DType::Int64);
}

// Reads rows of a [..., n] view into a buffer, or uses them in place if they are contiguous in the
// compute type.
template <class T>
const T* read_row(const TensorView& view, int64_t row, int64_t n, T* buffer) {
  if (view.dtype == dtype_of<T>() && view.is_contiguous())
    return static_cast<const T*>(view.data) + row * n;
  gather(view, row * n, n, buffer);
  return buffer;
}

// The memory for a row of an output: the row itself, or the buffer that store_row then writes back.
template <class T>
T* row_target(const TensorView& view, int64_t row, int64_t n, T* buffer) {
  return view.dtype == dtype_of<T>() && view.is_contiguous() ? static_cast<T*>(view.data) + row * n
                                                             : buffer;
}

template <class T>
void store_row(const TensorView& view, int64_t row, int64_t n, const T* from, const T* buffer) {
  if (from == buffer) scatter(view, row * n, n, from);
}

constexpr int64_t kGrainElements = 16384;
inline int64_t row_grain(int64_t n) { return n > 0 ? (kGrainElements + n - 1) / n : 1; }

}  // namespace
}  // namespace shardwise::cpu
