// Mathematics that g++ vectorises: branch-free scalar functions, chosen by `?:`, inlined into the
// loops of kernels. Float functions are within 2 ulp; rarely used ones compute in double and round
// once. Double has its own exp, log and tanh, the rest is libm. Compile with -fno-math-errno
// -fno-trapping-math -fwrapv; NaN, infinities and -0 keep their meaning.
//
// Everything has internal linkage, so that each instruction set gets its own copy. The constants of
// polynomials are minimax fits (Remez, relative error) of the formula in the comment.
#pragma once
#include "math_exp.h"
#include "math_trig.h"

namespace shardwise::cpu {
namespace {
namespace m {

// ---- error function ----

SW_MATH float erf(float x) {
  float a = abs(x);
  float t = 4.0f < a ? 4.0f : a;
  // erfc(a) = exp(...) for a in [0.92, 4]
  float q = 0.000195957997f;
  q = q * t + -0.0030433496f;
  q = q * t + 0.0222272407f;
  q = q * t + -0.103931963f;
  q = q * t + -0.637182057f;
  q = q * t + -1.12767565f;
  q = q * t + -0.00019568218f;
  float large = 1.0f - exp_inner(q);
  // erf(a) = a + a (...) for a < 0.93
  float z = a * a;
  float p = -0.000598779297f;
  p = p * z + 0.00499419356f;
  p = p * z + -0.026768988f;
  p = p * z + 0.112819619f;
  p = p * z + -0.376125246f;
  p = p * z + 0.128379166f;
  float small = p * a + a;
  return copysign(a < 0.925f ? small : large, x);
}
SW_MATH double erf(double x) { return __builtin_erf(x); }

SW_MATH float erfc(float x) {
  double a = abs(static_cast<double>(x));
  a = 10.2 < a ? 10.2 : a;
  // exp(a^2) erfc(a) as a polynomial of t
  double t = (a - 3.0) / (a + 3.0);
  double q = -6.694566088733842e-06;
  q = q * t + -9.547086331611036e-06;
  q = q * t + 6.395372883620866e-05;
  q = q * t + 4.325850297628428e-05;
  q = q * t + -0.0005972926123313671;
  q = q * t + 0.000708327227430954;
  q = q * t + 0.0042692150552917155;
  q = q * t + -0.024392583884737667;
  q = q * t + 0.07166582880958179;
  q = q * t + -0.15011593102970086;
  q = q * t + 0.24560380195536344;
  q = q * t + -0.32623356014602856;
  q = q * t + 0.1790011511809138;
  double r = exp_inner(-a * a) * q;
  return static_cast<float>(x < 0 ? 2.0 - r : r);
}
SW_MATH double erfc(double x) { return __builtin_erfc(x); }

// ---- pow ----

SW_MATH float pow(float x, float y) {
  double a = abs(static_cast<double>(x));
  double b = y;
  double r = exp_inner(b * log(a));
  r = b == 0 ? 1.0 : r;
  r = static_cast<double>(x) == 1.0 ? 1.0 : r;
  r = a == 1.0 ? (is_inf(b) ? 1.0 : r) : r;
  // From 2^24 on every float is an even integer; the clamped magnitude and its half are exact below
  // kMagicD.
  double c = abs(b);
  c = 0x1p30 < c ? 0x1p30 : c;
  double rest = c - ((c + kMagicD) - kMagicD);
  double half = 0.5 * c;
  double half_rest = abs(half - ((half + kMagicD) - kMagicD));  // 1/2 for odd integers only
  double flipped = half_rest == 0.5 ? -r : r;
  double negative = rest == 0 ? flipped : (a < kInfD ? static_cast<double>(kNanF) : r);
  // x = -0 is negative only by its sign bit, and a non-integer power of it is not NaN.
  negative = a == 0 ? flipped : negative;
  return static_cast<float>(bits(static_cast<double>(x)) < 0 ? negative : r);
}
SW_MATH double pow(double x, double y) { return __builtin_pow(x, y); }

[[maybe_unused]] static int64_t pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : (x == -1 ? ((y & 1) ? -1 : 1) : 0);
  int64_t result = 1;
  for (; y; y >>= 1, x *= x) {
    if (y & 1) result *= x;
  }
  return result;
}

// ---- division ----

// Exact for |x / y| < 2^28: the quotient of two floats is then too far from the next integer to be
// rounded up to it.
constexpr float kModuloLimit = 268435456.0f;

SW_MATH float fmod(float x, float y) {
  double a = x;
  double b = y;
  double r = a - __builtin_trunc(a / b) * b;
  float result = copysign(static_cast<float>(r), r == 0 ? x : static_cast<float>(r));
  return is_inf(y) & is_finite(x) ? x : result;
}
SW_MATH double fmod(double x, double y) { return __builtin_fmod(x, y); }

template <class T>
SW_MATH T remainder_from(T mod, T y) {
  return (mod != 0) & ((y < 0) != (mod < 0)) ? mod + y : mod;
}
SW_MATH float remainder(float x, float y) { return remainder_from(fmod(x, y), y); }
SW_MATH double remainder(double x, double y) { return remainder_from(fmod(x, y), y); }

// Python's float floor division from x % y, as in CPython and PyTorch.
template <class T>
SW_MATH T floor_divide_from(T mod, T x, T y) {
  T div = (x - mod) / y;
  div = (mod != 0) & ((y < 0) != (mod < 0)) ? div - T(1) : div;
  T down = floor(div);
  down = div - down > T(0.5) ? down + T(1) : down;
  T plain = x / y;
  T result = div == 0 ? copysign(T(0), plain) : down;
  return y == 0 ? plain : result;
}
SW_MATH float floor_divide(float x, float y) { return floor_divide_from(fmod(x, y), x, y); }
SW_MATH double floor_divide(double x, double y) { return floor_divide_from(fmod(x, y), x, y); }
SW_MATH float trunc_divide(float x, float y) { return trunc(x / y); }
SW_MATH double trunc_divide(double x, double y) { return trunc(x / y); }

// The kernels refuse a divisor of 0 beforehand; -1 is a special case because INT64_MIN / -1 traps.
SW_MATH int64_t trunc_divide(int64_t x, int64_t y) { return y == 0 ? 0 : (y == -1 ? -x : x / y); }
SW_MATH int64_t fmod(int64_t x, int64_t y) { return (y == 0) | (y == -1) ? 0 : x % y; }
SW_MATH int64_t remainder(int64_t x, int64_t y) { return remainder_from(fmod(x, y), y); }
SW_MATH int64_t floor_divide(int64_t x, int64_t y) {
  int64_t mod = fmod(x, y);
  return trunc_divide(x, y) - ((mod != 0) & ((y < 0) != (mod < 0)));
}

// ---- shifts: counts out of range shift everything out ----

SW_MATH int64_t shift_left(int64_t x, int64_t y) {
  return static_cast<uint64_t>(y) < 64 ? static_cast<int64_t>(static_cast<uint64_t>(x) << (y & 63))
                                       : 0;
}
SW_MATH int64_t shift_right(int64_t x, int64_t y) {
  return x >> (static_cast<uint64_t>(y) < 64 ? y : 63);
}

// ---- formulas of PyTorch ----

template <class T>
SW_MATH T lerp(T x, T y, T weight) {
  T d = y - x;
  return abs(weight) < T(0.5) ? x + weight * d : y - d * (T(1) - weight);
}

template <class T>
SW_MATH T silu_backward(T g, T x) {
  T s = T(1) / (T(1) + exp(-x));
  return g * (s * (T(1) + x * (T(1) - s)));
}

template <class T>
SW_MATH T gelu_backward(T g, T x) {
  T cdf = T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
  T pdf = exp(T(-0.5) * x * x) * T(0.39894228040143267794);
  return g * (cdf + x * pdf);
}

template <class T>
SW_MATH T gelu_tanh_backward(T g, T x) {
  constexpr T beta = T(0.79788456080286535588);
  constexpr T kappa = T(0.044715);
  T square = x * x;
  T t = tanh(beta * (x + kappa * square * x));
  T left = T(0.5) * (T(1) + t);
  T right = T(0.5) * x * (T(1) - t * t) * (beta * (T(1) + T(3) * kappa * square));
  return g * (left + right);
}

}  // namespace m
}  // namespace
}  // namespace shardwise::cpu
