// Matrix products with AVX2 and FMA: tiles of 6 x 16 float32 and 6 x 8 float64.
#include "engine.h"
#include "math_exp.h"
#include "philox.h"

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile gemm_avx2.cc with -mavx2 -mfma -mf16c"
#endif
#include <immintrin.h>

#define SW_VECTOR_BYTES 32
#define SW_ROWS_PER_TILE 6

namespace shardwise::cpu {
namespace {

// Sliding a window over this table gives the mask of the first n lanes.
alignas(64) const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
inline __m256i lanes8(int n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - n));
}
inline __m256i lanes4(int n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - 2 * n));
}
inline __m256 partial_load(const float* p, int n) { return _mm256_maskload_ps(p, lanes8(n)); }
inline __m256d partial_load(const double* p, int n) { return _mm256_maskload_pd(p, lanes4(n)); }
inline void partial_store(float* p, __m256 v, int n) { _mm256_maskstore_ps(p, lanes8(n), v); }
inline void partial_store(double* p, __m256d v, int n) { _mm256_maskstore_pd(p, lanes4(n), v); }

typedef uint16_t HalvesOf256 __attribute__((vector_size(16)));
inline __m256 widen_half(HalvesOf256 h) { return _mm256_cvtph_ps(reinterpret_cast<__m128i>(h)); }
inline float widen_one_half(uint16_t h) { return _cvtsh_ss(h); }
inline uint16_t round_to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

}  // namespace

#include "engines.inc"

const Engines* engines_avx2() { return &kEngines; }

}  // namespace shardwise::cpu
