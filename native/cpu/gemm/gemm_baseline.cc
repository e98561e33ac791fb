// Matrix products with 128-bit vectors, available on every x86-64 (SSE2) and arm64 (NEON): tiles of
// 6 x 8 float32, 6 x 4 float64.
#include "engine.h"
#include "math_exp.h"
#include "philox.h"

#define SW_VECTOR_BYTES 16
#define SW_ROWS_PER_TILE 6

namespace shardwise::cpu {
namespace {

typedef float Floats4 __attribute__((vector_size(16)));
typedef double Doubles2 __attribute__((vector_size(16)));
typedef uint32_t Words4 __attribute__((vector_size(16)));
typedef uint16_t HalvesOf128 __attribute__((vector_size(8)));

inline Floats4 partial_load(const float* p, int n) {
  return Floats4{p[0], n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0};
}
inline Doubles2 partial_load(const double* p, int n) { return Doubles2{p[0], n > 1 ? p[1] : 0}; }
inline void partial_store(float* p, Floats4 v, int n) {
  p[0] = v[0];
  if (n > 1) p[1] = v[1];
  if (n > 2) p[2] = v[2];
  if (n > 3) p[3] = v[3];
}
inline void partial_store(double* p, Doubles2 v, int n) {
  p[0] = v[0];
  if (n > 1) p[1] = v[1];
}

// Shifts exponent and fraction into position and corrects the bias by a multiplication, which also
// normalizes subnormals.
inline Floats4 widen_half(HalvesOf128 h) {
  const Words4 bits = __builtin_convertvector(h, Words4);
  const Words4 magnitude = (bits & 0x7fff) << 13;
  const Floats4 scaled = reinterpret_cast<Floats4>(magnitude) * 0x1p112f;
  const Words4 special = reinterpret_cast<Words4>((bits & 0x7c00) == 0x7c00) & 0x7f800000u;
  return reinterpret_cast<Floats4>(reinterpret_cast<Words4>(scaled) | special |
                                   (bits & 0x8000) << 16);
}
inline float widen_one_half(uint16_t h) { return widen_half(HalvesOf128{h, 0, 0, 0})[0]; }

inline uint16_t round_to_half(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  // subnormal: adding 0.5 makes the FPU round at the last place of a half
  if (magnitude < 0x38800000) {
    float y;
    __builtin_memcpy(&y, &magnitude, 4);
    y += 0.5f;
    uint32_t rounded;
    __builtin_memcpy(&rounded, &y, 4);
    return static_cast<uint16_t>(sign | (rounded - 0x3f000000));
  }
  return static_cast<uint16_t>(sign |
                               ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

}  // namespace

#include "engines.inc"

const Engines* engines_baseline() { return &kEngines; }

}  // namespace shardwise::cpu
