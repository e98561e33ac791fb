// Box-Muller normals from Philox words, as in native/README.md, "Conventions of kernels";
// vectorises. Internal linkage, as math.h.
#pragma once
#include "math.h"
#include "philox.h"

namespace shardwise::cpu {
namespace {

// sin and cos of a quarter turn times r, |r| <= 1/2.
SW_MATH float sin_quarter(float r, float z) {
  return r * (1.57079637f + z * (-0.645963609f + z * (0.0796806812f + z * -0.00460215984f)));
}
SW_MATH float cos_quarter(float z) {
  return 1.0f +
         z * (-1.23370051f + z * (0.253669232f + z * (-0.0208601654f + z * 0.000903766544f)));
}
SW_MATH double sin_quarter(double r, double z) {
  double q = 5.6337210013415147e-08;
  q = q * z + -3.598641754361706e-06;
  q = q * z + 0.0001604411502916237;
  q = q * z + -0.004681754132282414;
  q = q * z + 0.07969262624603957;
  q = q * z + -0.6459640975062443;
  return r * (q * z + 1.5707963267948966);
}
SW_MATH double cos_quarter(double z) {
  double q = -6.321202084948077e-09;
  q = q * z + 4.7106096694776146e-07;
  q = q * z + -2.5202036788293e-05;
  q = q * z + 0.0009192602741910676;
  q = q * z + -0.02086348076331257;
  q = q * z + 0.2536695079010468;
  q = q * z + -1.2337005501361697;
  return q * z + 1.0;
}

SW_MATH float negate_if(float v, int32_t bit) {
  return m::from_bits(m::bits(v) ^ static_cast<int32_t>(static_cast<uint32_t>(bit) << 31));
}
SW_MATH double negate_if(double v, int64_t bit) {
  return m::from_bits(m::bits(v) ^ static_cast<int64_t>(static_cast<uint64_t>(bit) << 63));
}

// out[2i] takes the cosine of pair i, out[2i + 1] the sine.
template <class T>
[[maybe_unused]] static __attribute__((noinline)) void make_normals(const uint32_t* words,
                                                                    int64_t n, T mean, T deviation,
                                                                    T* out) {
  constexpr T magic = sizeof(T) == 4 ? T(m::kMagicF) : T(m::kMagicD);
  const int64_t pairs = (n + 1) / 2;
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; i++) {
    const T u0 = static_cast<T>(uniform_float(words[2 * i]));
    const T u1 = static_cast<T>(uniform_float(words[2 * i + 1]));
    const T radius = deviation * m::sqrt(T(-2) * m::log(T(1) - u0));
    const T t = T(4) * u1 + magic;
    const T r = T(4) * u1 - (t - magic);
    const T s = sin_quarter(r, r * r);
    const T c = cos_quarter(r * r);
    const auto quadrant = m::bits(t);
    const T cosine = quadrant & 1 ? s : c;
    const T sine = quadrant & 1 ? c : s;
    out[2 * i] = mean + radius * negate_if(cosine, ((quadrant + 1) & 2) >> 1);
    out[2 * i + 1] = mean + radius * negate_if(sine, (quadrant & 2) >> 1);
  }
}

}  // namespace
}  // namespace shardwise::cpu
