// The functions of the expressions in generated/pointwise_ops.inc for float, double and int64_t,
// with PyTorch's semantics. Functions of more than a few instructions are not inlined for float and
// double: the vector kernels apply an expression to 8 elements per thread, and 8 copies of a range
// reduction cost more (code, compile time) than a call.
#pragma once
#include <cstdint>

namespace shardwise::cuda::m {

#define SW_INLINE __device__ __forceinline__
#define SW_CALL static __device__ __noinline__

// One line per library function: name, attribute.
#define SW_MATH_1(name, how)                       \
  how float name(float x) { return ::name##f(x); } \
  how double name(double x) { return ::name(x); }
SW_INLINE float exp(float x) { return ::expf(x); }
SW_CALL double exp(double x) { return ::exp(x); }
SW_INLINE float exp2(float x) { return ::exp2f(x); }
SW_CALL double exp2(double x) { return ::exp2(x); }
SW_INLINE float log(float x) { return ::logf(x); }
SW_CALL double log(double x) { return ::log(x); }
SW_INLINE float log2(float x) { return ::log2f(x); }
SW_CALL double log2(double x) { return ::log2(x); }
SW_INLINE float log10(float x) { return ::log10f(x); }
SW_CALL double log10(double x) { return ::log10(x); }
SW_INLINE float tanh(float x) { return ::tanhf(x); }
SW_CALL double tanh(double x) { return ::tanh(x); }
SW_INLINE float erf(float x) { return ::erff(x); }
SW_CALL double erf(double x) { return ::erf(x); }
SW_MATH_1(sqrt, SW_INLINE)
SW_MATH_1(expm1, SW_CALL)
SW_MATH_1(log1p, SW_CALL)
SW_MATH_1(sin, SW_CALL)
SW_MATH_1(cos, SW_CALL)
SW_MATH_1(tan, SW_CALL)
SW_MATH_1(asin, SW_CALL)
SW_MATH_1(acos, SW_CALL)
SW_MATH_1(atan, SW_CALL)
SW_MATH_1(sinh, SW_CALL)
SW_MATH_1(cosh, SW_CALL)
SW_MATH_1(asinh, SW_CALL)
SW_MATH_1(acosh, SW_CALL)
SW_MATH_1(atanh, SW_CALL)
SW_MATH_1(erfc, SW_CALL)
#undef SW_MATH_1
SW_CALL float atan2(float y, float x) { return ::atan2f(y, x); }
SW_CALL double atan2(double y, double x) { return ::atan2(y, x); }

// Rounding; integers stay as they are. round is half to even.
#define SW_ROUNDING(name, function)                          \
  SW_INLINE float name(float x) { return ::function##f(x); } \
  SW_INLINE double name(double x) { return ::function(x); }  \
  SW_INLINE int64_t name(int64_t x) { return x; }
SW_ROUNDING(floor, floor)
SW_ROUNDING(ceil, ceil)
SW_ROUNDING(trunc, trunc)
SW_ROUNDING(round, rint)
#undef SW_ROUNDING

SW_INLINE float abs(float x) { return ::fabsf(x); }
SW_INLINE double abs(double x) { return ::fabs(x); }
SW_INLINE int64_t abs(int64_t x) { return x < 0 ? -x : x; }

// 0 for NaN.
template <class T>
SW_INLINE T sign(T x) {
  return static_cast<T>((x > T(0)) - (x < T(0)));
}

SW_INLINE bool is_inf(float x) { return ::fabsf(x) == __int_as_float(0x7f800000); }
SW_INLINE bool is_inf(double x) { return ::fabs(x) == __longlong_as_double(0x7ff0000000000000ll); }
SW_INLINE bool is_inf(int64_t) { return false; }
SW_INLINE bool is_finite(float x) { return ::fabsf(x) < __int_as_float(0x7f800000); }
SW_INLINE bool is_finite(double x) {
  return ::fabs(x) < __longlong_as_double(0x7ff0000000000000ll);
}
SW_INLINE bool is_finite(int64_t) { return true; }

// NaN in either operand gives NaN.
template <class T>
SW_INLINE T maximum(T a, T b) {
  return (a > b || a != a) ? a : b;
}
template <class T>
SW_INLINE T minimum(T a, T b) {
  return (a < b || a != a) ? a : b;
}

// Division. Integers: 0 if the divisor is 0, and no fault at INT64_MIN / -1.
SW_INLINE float fmod(float a, float b);
SW_CALL int64_t divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  if (((static_cast<uint64_t>(a) | static_cast<uint64_t>(b)) >> 31) == 0)
    return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}
SW_CALL float library_fmod(float a, float b) { return ::fmodf(a, b); }
SW_CALL double library_fmod(double a, double b) { return ::fmod(a, b); }
SW_INLINE float fmod(float a, float b) { return library_fmod(a, b); }
SW_INLINE double fmod(double a, double b) { return library_fmod(a, b); }
SW_INLINE int64_t fmod(int64_t a, int64_t b) { return b == 0 ? 0 : a - divide(a, b) * b; }

SW_INLINE float trunc_divide(float a, float b) { return ::truncf(a / b); }
SW_INLINE double trunc_divide(double a, double b) { return ::trunc(a / b); }
SW_INLINE int64_t trunc_divide(int64_t a, int64_t b) { return divide(a, b); }

// With the sign of the divisor, as Python's %.
template <class T>
SW_INLINE T floating_remainder(T a, T b) {
  T r = library_fmod(a, b);
  if (r != T(0) && ((b < T(0)) != (r < T(0)))) r += b;
  return r;
}
SW_INLINE float remainder(float a, float b) { return floating_remainder(a, b); }
SW_INLINE double remainder(double a, double b) { return floating_remainder(a, b); }
SW_INLINE int64_t remainder(int64_t a, int64_t b) {
  const int64_t r = fmod(a, b);
  return r != 0 && ((r ^ b) < 0) ? r + b : r;
}

// floor(a / b) computed through the exact remainder, as Python's //.
template <class T>
SW_INLINE T floating_floor_divide(T a, T b) {
  if (b == T(0)) return a / b;
  const T r = library_fmod(a, b);
  T q = (a - r) / b;
  if (r != T(0) && ((b < T(0)) != (r < T(0)))) q -= T(1);
  if (q == T(0)) return ::copysign(T(0), a / b);
  const T whole = floor(q);
  return q - whole > T(0.5) ? whole + T(1) : whole;
}
SW_INLINE float floor_divide(float a, float b) { return floating_floor_divide(a, b); }
SW_INLINE double floor_divide(double a, double b) { return floating_floor_divide(a, b); }
SW_INLINE int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = divide(a, b);
  return b != 0 && q * b != a && ((a ^ b) < 0) ? q - 1 : q;
}

SW_CALL float pow(float x, float y) { return ::powf(x, y); }
SW_CALL double pow(double x, double y) { return ::pow(x, y); }
// Wraps on overflow; a negative exponent gives 0 except for bases 1 and -1.
SW_CALL int64_t pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0;
  uint64_t result = 1, base = static_cast<uint64_t>(x);
  for (uint64_t e = static_cast<uint64_t>(y); e; e >>= 1) {
    if (e & 1) result *= base;
    base *= base;
  }
  return static_cast<int64_t>(result);
}

// Out of range: left gives 0, right the sign.
SW_INLINE int64_t shift_left(int64_t x, int64_t n) {
  return n < 0 || n > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << n);
}
SW_INLINE int64_t shift_right(int64_t x, int64_t n) { return x >> (n < 0 || n > 63 ? 63 : n); }

template <class T>
SW_INLINE T lerp(T start, T end, T weight) {
  return abs(weight) < T(0.5) ? start + weight * (end - start)
                              : end - (end - start) * (T(1) - weight);
}

// Gradients: g is the incoming one, x the input of the forward function.
template <class T>
SW_INLINE T silu_backward(T g, T x) {
  const T s = T(1) / (T(1) + exp(-x));
  return g * s * (T(1) + x * (T(1) - s));
}

template <class T>
SW_INLINE T gelu_backward(T g, T x) {
  const T cdf = T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
  const T pdf = exp(T(-0.5) * x * x) * T(0.39894228040143267794);
  return g * (cdf + x * pdf);
}

template <class T>
SW_INLINE T gelu_tanh_backward(T g, T x) {
  const T beta = T(0.79788456080286535588), kappa = T(0.044715);
  const T square = x * x;
  const T t = tanh(beta * (x + kappa * square * x));
  const T left = T(0.5) * x, right = T(1) + t;
  const T inner_derivative = beta * (T(1) + T(3) * kappa * square);
  return g * (T(0.5) * right + left * (T(1) - t * t) * inner_derivative);
}

#undef SW_INLINE
#undef SW_CALL

}  // namespace shardwise::cuda::m
