// Keeps uniform numbers below their bound in every dtype, because low + (high - low) * u may round
// up to it.
#pragma once
#include <cmath>

#include "dtype.h"

namespace shardwise {

// The largest number of the dtype that is less than `high`, but at least `low`.
inline double largest_below(double high, double low, DType dtype) {
  int digits = 53, least = -1074;  // of the significand; exponent of the smallest subnormal
  if (dtype == DType::Float32) digits = 24, least = -149;
  if (dtype == DType::BFloat16) digits = 8, least = -133;
  if (dtype == DType::Float16) digits = 11, least = -24;
  int exponent = 0;
  const double fraction = std::frexp(high, &exponent);
  if (fraction == 0.5) exponent--;  // numbers are denser below
  const double step = std::ldexp(1.0, exponent - digits > least ? exponent - digits : least);
  const double below = (std::ceil(high / step) - 1) * step;
  return below < low ? low : below;
}

}  // namespace shardwise
