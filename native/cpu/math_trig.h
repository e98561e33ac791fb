// Trigonometric and hyperbolic functions of math.h. Float versions compute in double and round
// once, except tanh.
#pragma once
#include "math_exp.h"

namespace shardwise::cpu {
namespace {
namespace m {

// Beyond this |x| the reduction of sin, cos and tan loses bits: the caller uses libm (see
// pointwise_guard in pointwise.cc).
constexpr float kTrigLimit = 67108864.0f;

struct SinCos {
  double sin, cos;
  int64_t quadrant;  // only the two low bits are valid
};

// sin and cos of x minus the nearest multiple of pi/2, to 2^-37.
SW_MATH SinCos sin_cos_reduced(double x) {
  double t = x * 0.6366197723675814 + kMagicD;
  double n = t - kMagicD;
  // 1.57.. holds 26 bits of pi/2: n * 1.57.. is exact
  double r = (x - n * 1.5707963109016418) - n * 1.5893254773528196e-08;
  double z = r * r;
  double s = 2.7181141104461285e-06;
  s = s * z + -0.00019839311484561996;
  s = s * z + 0.008333329302414256;
  s = s * z + -0.16666666640776207;
  double c = -2.717471261689743e-07;
  c = c * z + 2.4798959669641868e-05;
  c = c * z + -0.0013888880654411744;
  c = c * z + 0.04166666655333507;
  c = c * z + -0.4999999999948886;
  return {r * (s * z + 1.0), c * z + 1.0, bits(t)};
}

SW_MATH double flip(double v, int64_t quadrant) {
  return from_bits(bits(v) ^ static_cast<int64_t>(static_cast<uint64_t>(quadrant & 2) << 62));
}

SW_MATH float sin(float x) {
  SinCos p = sin_cos_reduced(x);
  return static_cast<float>(flip(p.quadrant & 1 ? p.cos : p.sin, p.quadrant));
}
SW_MATH float cos(float x) {
  SinCos p = sin_cos_reduced(x);
  return static_cast<float>(flip(p.quadrant & 1 ? p.sin : p.cos, p.quadrant + 1));
}
SW_MATH float tan(float x) {
  SinCos p = sin_cos_reduced(x);
  bool odd = p.quadrant & 1;
  return static_cast<float>((odd ? -p.cos : p.sin) / (odd ? p.sin : p.cos));
}
SW_MATH double sin(double x) { return __builtin_sin(x); }
SW_MATH double cos(double x) { return __builtin_cos(x); }
SW_MATH double tan(double x) { return __builtin_tan(x); }

// asin(s) for s in [0, 1/2], z = s^2
SW_MATH double asin_polynomial(double s, double z) {
  double q = 0.03289625529739163;
  q = q * z + 0.0019935688575702416;
  q = q * z + 0.020640917235617954;
  q = q * z + 0.021866781650829645;
  q = q * z + 0.030426409973206926;
  q = q * z + 0.04464071421157197;
  q = q * z + 0.07500004965059859;
  q = q * z + 0.16666666627482277;
  return s + s * z * q;
}

constexpr double kHalfPi = 1.57079632679489661923;

SW_MATH float asin(float x) {
  double a = abs(static_cast<double>(x));
  bool big = a > 0.5;
  double z = big ? 0.5 - 0.5 * a : a * a;
  double p = asin_polynomial(big ? sqrt(z) : a, z);
  return copysign(static_cast<float>(big ? kHalfPi - 2.0 * p : p), x);
}
SW_MATH float acos(float x) {
  double d = x;
  double a = abs(d);
  bool big = a > 0.5;
  double z = big ? 0.5 - 0.5 * a : a * a;
  double p = asin_polynomial(big ? sqrt(z) : a, z);
  double near_one = d < 0 ? 2.0 * kHalfPi - 2.0 * p : 2.0 * p;
  return static_cast<float>(big ? near_one : kHalfPi - copysign(p, d));
}
SW_MATH double asin(double x) { return __builtin_asin(x); }
SW_MATH double acos(double x) { return __builtin_acos(x); }

// atan(q) for q in [0, 1]
SW_MATH double atan_polynomial(double q) {
  double z = q * q;
  double p = -0.0006979595711868251;
  p = p * z + 0.004926367153754132;
  p = p * z + -0.016299469070987897;
  p = p * z + 0.034475891016725935;
  p = p * z + -0.05451597185446073;
  p = p * z + 0.07259438007774976;
  p = p * z + -0.08985438951727562;
  p = p * z + 0.11094503629080456;
  p = p * z + -0.14284167227779318;
  p = p * z + 0.19999927243852682;
  p = p * z + -0.33333332133789595;
  return q * (p * z + 1.0);
}

SW_MATH float atan(float x) {
  double a = abs(static_cast<double>(x));
  bool big = a > 1.0;
  double r = atan_polynomial((big ? 1.0 : a) / (big ? a : 1.0));
  return copysign(static_cast<float>(big ? kHalfPi - r : r), x);
}
SW_MATH double atan(double x) { return __builtin_atan(x); }

SW_MATH float atan2(float y, float x) {
  double a = abs(static_cast<double>(x));
  double b = abs(static_cast<double>(y));
  bool steep = b > a;
  double low = steep ? a : b;
  double high = steep ? b : a;
  double q = low / high;
  q = high == 0 ? 0.0 : q;
  q = low == kInfD ? 1.0 : q;
  double r = atan_polynomial(q);
  r = steep ? kHalfPi - r : r;
  r = bits(x) < 0 ? 2.0 * kHalfPi - r : r;
  r = (a != a) | (b != b) ? a + b : r;
  return copysign(static_cast<float>(r), y);
}
SW_MATH double atan2(double y, double x) { return __builtin_atan2(y, x); }

// Below kTiny the exact formulas cancel, and the first two terms of the series are exact enough.
constexpr double kTiny = 0x1p-12;

SW_MATH float sinh(float x) {
  double a = abs(static_cast<double>(x));
  double e = exp_inner(a);
  double r = a < kTiny ? a + a * a * a * (1.0 / 6) : 0.5 * (e - 1.0 / e);
  return copysign(static_cast<float>(r), x);
}
SW_MATH float cosh(float x) {
  double e = exp_inner(static_cast<double>(x));
  return static_cast<float>(0.5 * (e + 1.0 / e));
}
SW_MATH double sinh(double x) { return __builtin_sinh(x); }
SW_MATH double cosh(double x) { return __builtin_cosh(x); }

SW_MATH float tanh(float x) {
  float a = abs(x);
  float e = exp_inner(2.0f * (10.0f < a ? 10.0f : a));
  float large = 1.0f - 2.0f / (e + 1.0f);
  // tanh(a) = a + a^3 (...) for a < 0.625
  float z = a * a;
  float q = -0.00569229666f;
  q = q * z + 0.0206281673f;
  q = q * z + -0.0537365153f;
  q = q * z + 0.133314058f;
  q = q * z + -0.333332807f;
  float small = q * z * a + a;
  return copysign(a < 0.625f ? small : large, x);
}
SW_MATH double tanh(double x) {
  double a = abs(x);
  double e = expm1(2.0 * (22.0 < a ? 22.0 : a));
  return copysign(e / (e + 2.0), x);
}

SW_MATH float asinh(float x) {
  double a = abs(static_cast<double>(x));
  double r = a < kTiny ? a - a * a * a * (1.0 / 6) : log(a + sqrt(a * a + 1.0));
  return copysign(static_cast<float>(r), x);
}
SW_MATH float acosh(float x) {
  double d = x;
  double r = log(d + sqrt(d * d - 1.0));
  return d < 1.0 ? kNanF : static_cast<float>(r);
}
SW_MATH float atanh(float x) {
  double d = x;
  double r = abs(d) < kTiny ? d + d * d * d * (1.0 / 3) : 0.5 * log((1.0 + d) / (1.0 - d));
  return x == 0 ? x : static_cast<float>(r);
}
SW_MATH double asinh(double x) { return __builtin_asinh(x); }
SW_MATH double acosh(double x) { return __builtin_acosh(x); }
SW_MATH double atanh(double x) { return __builtin_atanh(x); }

}  // namespace m
}  // namespace
}  // namespace shardwise::cpu
