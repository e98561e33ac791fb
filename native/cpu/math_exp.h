// Bits, rounding, exponentials and logarithms of math.h, which has the rules.
#pragma once
#include <cstdint>

namespace shardwise::cpu {
namespace {
namespace m {

#define SW_MATH [[maybe_unused]] static inline __attribute__((always_inline))

constexpr float kInfF = __builtin_inff();
constexpr double kInfD = __builtin_inf();
constexpr float kNanF = __builtin_nanf("");

SW_MATH int32_t bits(float x) { return __builtin_bit_cast(int32_t, x); }
SW_MATH int64_t bits(double x) { return __builtin_bit_cast(int64_t, x); }
SW_MATH float from_bits(int32_t b) { return __builtin_bit_cast(float, b); }
SW_MATH double from_bits(int64_t b) { return __builtin_bit_cast(double, b); }

// Adding one of these rounds to an integer, which is then in the low bits of the sum.
constexpr float kMagicF = 12582912.0f;
constexpr double kMagicD = 6755399441055744.0;

SW_MATH float abs(float x) { return from_bits(bits(x) & 0x7fffffff); }
SW_MATH double abs(double x) { return from_bits(bits(x) & INT64_MAX); }
SW_MATH int64_t abs(int64_t x) { return x < 0 ? -x : x; }
SW_MATH float copysign(float x, float s) {
  return from_bits((bits(x) & 0x7fffffff) | (bits(s) & INT32_MIN));
}
SW_MATH double copysign(double x, double s) {
  return from_bits((bits(x) & INT64_MAX) | (bits(s) & INT64_MIN));
}
SW_MATH float sign(float x) { return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f); }
SW_MATH double sign(double x) { return x > 0 ? 1.0 : (x < 0 ? -1.0 : 0.0); }
SW_MATH int64_t sign(int64_t x) { return (x > 0) - (x < 0); }

SW_MATH float floor(float x) { return __builtin_floorf(x); }
SW_MATH double floor(double x) { return __builtin_floor(x); }
SW_MATH int64_t floor(int64_t x) { return x; }
SW_MATH float ceil(float x) { return __builtin_ceilf(x); }
SW_MATH double ceil(double x) { return __builtin_ceil(x); }
SW_MATH int64_t ceil(int64_t x) { return x; }
SW_MATH float round(float x) { return __builtin_rintf(x); }
SW_MATH double round(double x) { return __builtin_rint(x); }
SW_MATH int64_t round(int64_t x) { return x; }
SW_MATH float trunc(float x) { return __builtin_truncf(x); }
SW_MATH double trunc(double x) { return __builtin_trunc(x); }
SW_MATH int64_t trunc(int64_t x) { return x; }
SW_MATH float sqrt(float x) { return __builtin_sqrtf(x); }
SW_MATH double sqrt(double x) { return __builtin_sqrt(x); }

template <class T>
SW_MATH T maximum(T x, T y) {
  T r = x > y ? x : y;
  return x != x ? x : r;
}
template <class T>
SW_MATH T minimum(T x, T y) {
  T r = x < y ? x : y;
  return x != x ? x : r;
}
SW_MATH bool is_inf(float x) { return abs(x) == kInfF; }
SW_MATH bool is_inf(double x) { return abs(x) == kInfD; }
SW_MATH bool is_inf(int64_t) { return false; }
SW_MATH bool is_finite(float x) { return abs(x) < kInfF; }
SW_MATH bool is_finite(double x) { return abs(x) < kInfD; }
SW_MATH bool is_finite(int64_t) { return true; }

// ---- exp ----

// e^r = 1 + r + r^2 (...) for |r| <= ln(2) / 2
SW_MATH float exp_polynomial(float r) {
  float q = 0.00138389017f;
  q = q * r + 0.00836919248f;
  q = q * r + 0.0416681021f;
  q = q * r + 0.166665167f;
  q = q * r + 0.49999994f;
  return (q * (r * r) + r) + 1.0f;
}

SW_MATH float reduce_ln2(float x, float n) {
  return (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
}

// Multiplies by 2^n in two steps, so that results in the denormal range round once.
SW_MATH float scale_by_power(float p, float magic_n) {
  int32_t n = bits(magic_n) - bits(kMagicF);
  int32_t half = n >> 1;
  return p * from_bits((half + 127) << 23) * from_bits((n - half + 127) << 23);
}

SW_MATH float exp(float x) {
  x = 88.8f < x ? 88.8f : x;
  x = x < -104.0f ? -104.0f : x;
  float t = x * 1.44269504088896341f + kMagicF;
  return scale_by_power(exp_polynomial(reduce_ln2(x, t - kMagicF)), t);
}

// For x in [-87, 88] only.
SW_MATH float exp_inner(float x) {
  float t = x * 1.44269504088896341f + kMagicF;
  return exp_polynomial(reduce_ln2(x, t - kMagicF)) * from_bits((bits(t) << 23) + (127 << 23));
}

SW_MATH float exp2(float x) {
  x = 128.5f < x ? 128.5f : x;
  x = x < -150.5f ? -150.5f : x;
  float t = x + kMagicF;
  float r = x - (t - kMagicF);
  float q = 0.000153024666f;
  q = q * r + 0.00134320138f;
  q = q * r + 0.00961809698f;
  q = q * r + 0.0555023663f;
  q = q * r + 0.240226552f;
  q = q * r + 0.693147242f;
  return scale_by_power(q * r + 1.0f, t);
}

SW_MATH double exp_polynomial(double r) {
  double q = 2.0951917987880123e-09;
  q = q * r + 2.5114753051111855e-08;
  q = q * r + 2.7557090319888695e-07;
  q = q * r + 2.7557228173149626e-06;
  q = q * r + 2.480158755070416e-05;
  q = q * r + 0.00019841269903446727;
  q = q * r + 0.001388888888877861;
  q = q * r + 0.008333333333313906;
  q = q * r + 0.041666666666666824;
  q = q * r + 0.16666666666666688;
  return ((q * r + 0.5) * (r * r) + r) + 1.0;
}

SW_MATH double reduce_ln2(double x, double n) {
  return (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
}

SW_MATH double scale_by_power(double p, double magic_n) {
  double n = magic_n - kMagicD;
  double half = n * 0.5 + kMagicD;
  double rest = (n - (half - kMagicD)) + kMagicD;
  constexpr int64_t one = int64_t{1023} << 52;
  return p * from_bits((bits(half) << 52) + one) * from_bits((bits(rest) << 52) + one);
}

SW_MATH double exp(double x) {
  x = 710.0 < x ? 710.0 : x;
  x = x < -746.0 ? -746.0 : x;
  double t = x * 1.44269504088896340736 + kMagicD;
  return scale_by_power(exp_polynomial(reduce_ln2(x, t - kMagicD)), t);
}

// Clamped to [-600, 600]: for float functions, whose results are then beyond the range of float
// anyway.
SW_MATH double exp_inner(double x) {
  x = 600.0 < x ? 600.0 : x;
  x = x < -600.0 ? -600.0 : x;
  double t = x * 1.44269504088896340736 + kMagicD;
  return exp_polynomial(reduce_ln2(x, t - kMagicD)) *
         from_bits((bits(t) << 52) + (int64_t{1023} << 52));
}

SW_MATH double exp2(double x) {
  x = 1025.0 < x ? 1025.0 : x;
  x = x < -1076.0 ? -1076.0 : x;
  double t = x + kMagicD;
  return scale_by_power(exp_polynomial((x - (t - kMagicD)) * 0.69314718055994530942), t);
}

SW_MATH float expm1(float x) {
  double d = x;
  double r = abs(d) < 0x1p-13 ? d + 0.5 * d * d : exp_inner(d) - 1.0;
  return x == 0 ? x : static_cast<float>(r);
}

// 2^n (e^r - 1) + (2^n - 1), halved inside so that 2^1024 is not needed.
SW_MATH double expm1(double v) {
  double x = 710.0 < v ? 710.0 : v;
  x = x < -40.0 ? -40.0 : x;
  double t = x * 1.44269504088896340736 + kMagicD;
  double r = reduce_ln2(x, t - kMagicD);
  double q = 2.087394147006211e-09;
  q = q * r + 2.510781026456787e-08;
  q = q * r + 2.755733716839506e-07;
  q = q * r + 2.7557246546812415e-06;
  q = q * r + 2.480158731559593e-05;
  q = q * r + 0.00019841269884945546;
  q = q * r + 0.001388888888887151;
  q = q * r + 0.008333333333321785;
  q = q * r + 0.0416666666666667;
  q = q * r + 0.16666666666666677;
  double p = (q * r + 0.5) * (r * r) + r;
  double s = from_bits((bits(t) << 52) + (int64_t{1022} << 52));
  double result = 2.0 * (s * p + (s - 0.5));
  return v == 0 ? v : result;
}

// ---- log ----

SW_MATH float log(float x) {
  bool tiny = x < 1.17549435e-38f;
  int32_t b = bits(tiny ? x * 8388608.0f : x);
  int32_t exponent = (b - 0x3f2aaaab) & static_cast<int32_t>(0xff800000);
  float n = static_cast<float>((exponent >> 23) - (tiny ? 23 : 0));
  // log(1 + f) = f - f^2 / 2 + f^3 (...) for 1 + f in [2/3, 4/3)
  float f = from_bits(b - exponent) - 1.0f;
  float q = -0.124528393f;
  q = q * f + 0.140736386f;
  q = q * f + -0.122779138f;
  q = q * f + 0.139879316f;
  q = q * f + -0.16674304f;
  q = q * f + 0.20011498f;
  q = q * f + -0.24999921f;
  q = q * f + 0.333331972f;
  float r = (q * f - 0.5f) * (f * f) + n * 1.42860682030941723e-6f;
  r = n * 0.693145751953125f + (f + r);
  r = x < kInfF ? r : x;
  r = x < 0 ? kNanF : r;
  return x == 0 ? -kInfF : r;
}

// Splits x = 2^n (1 + f), 1 + f in [1/sqrt(2), sqrt(2)), and gives log(1 + f). Zero, negatives,
// infinity: see log.
SW_MATH double log_reduced(double x, double* n) {
  bool tiny = x < 2.2250738585072014e-308;
  int64_t b = bits(tiny ? x * 18014398509481984.0 : x);
  constexpr int64_t low = 0x3fe6a09e667f3bcd;
  uint64_t shifted = static_cast<uint64_t>(b + (0x3ff0000000000000 - low));
  double exponent = from_bits(static_cast<int64_t>(shifted >> 52) | 0x4330000000000000);
  *n = exponent - (tiny ? 4503599627370496.0 + 1077.0 : 4503599627370496.0 + 1023.0);
  double f = from_bits(static_cast<int64_t>(shifted & 0x000fffffffffffff) + low) - 1.0;
  // log(1 + f) = 2 s + s R(s^2), s = f / (2 + f), arranged so that f enters unrounded
  double s = f / (2.0 + f);
  double z = s * s;
  double q = 0.14795727951412938;
  q = q * z + 0.15314076329935414;
  q = q * z + 0.181835631427473;
  q = q * z + 0.22222198600360563;
  q = q * z + 0.2857142874206317;
  q = q * z + 0.39999999999416547;
  q = q * z + 0.6666666666666734;
  double half = 0.5 * f * f;
  return f - (half - s * (half + q * z));
}

SW_MATH double log_special(double x, double r) {
  r = x < kInfD ? r : x;
  r = x < 0 ? -__builtin_nan("") : r;
  return x == 0 ? -kInfD : r;
}

SW_MATH double log(double x) {
  double n;
  double r = log_reduced(x, &n);
  return log_special(x, n * 0.6931471803691238 + (r + n * 1.9082149292705877e-10));
}

SW_MATH float log2(float x) {
  double n;
  double r = log_reduced(x, &n);
  return static_cast<float>(log_special(x, n + r * 1.44269504088896340736));
}
SW_MATH double log2(double x) { return __builtin_log2(x); }

SW_MATH float log10(float x) {
  double n;
  double r = log_reduced(x, &n);
  return static_cast<float>(
      log_special(x, n * 0.30102999566398119521 + r * 0.43429448190325182765));
}
SW_MATH double log10(double x) { return __builtin_log10(x); }

SW_MATH float log1p(float x) {
  double d = x;
  double r = abs(d) < 0x1p-13 ? d - 0.5 * d * d : log(1.0 + d);
  return x == 0 ? x : static_cast<float>(r);
}

// log(u) for the rounded u = 1 + x, plus the correction of the rounding.
SW_MATH double log1p(double x) {
  double u = 1.0 + x;
  double n;
  double r = log_reduced(u, &n);
  double correction = (abs(x) < 1.0 ? x - (u - 1.0) : 1.0 - (u - x)) / u;
  r = n * 0.6931471803691238 + (r + (n * 1.9082149292705877e-10 + correction));
  r = log_special(u, r);
  return x == 0 ? x : r;
}

}  // namespace m
}  // namespace
}  // namespace shardwise::cpu
