// Matrix products with AVX-512: tiles of 14 x 32 float32 and 14 x 16 float64.
#include "engine.h"
#include "math_exp.h"
#include "philox.h"

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || \
    !defined(__AVX512VL__)
#error "compile gemm_avx512.cc with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif
#include <immintrin.h>

#define SW_VECTOR_BYTES 64
#define SW_ROWS_PER_TILE 14

namespace shardwise::cpu {
namespace {

inline __mmask16 lanes16(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline __mmask8 lanes8(int n) { return static_cast<__mmask8>((1u << n) - 1); }
inline __m512 partial_load(const float* p, int n) { return _mm512_maskz_loadu_ps(lanes16(n), p); }
inline __m512d partial_load(const double* p, int n) { return _mm512_maskz_loadu_pd(lanes8(n), p); }
inline void partial_store(float* p, __m512 v, int n) { _mm512_mask_storeu_ps(p, lanes16(n), v); }
inline void partial_store(double* p, __m512d v, int n) { _mm512_mask_storeu_pd(p, lanes8(n), v); }

typedef uint16_t HalvesOf512 __attribute__((vector_size(32)));
inline __m512 widen_half(HalvesOf512 h) {
  return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(h));
}
inline float widen_one_half(uint16_t h) { return _cvtsh_ss(h); }
inline uint16_t round_to_half(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

}  // namespace

#include "engines.inc"

const Engines* engines_avx512() { return &kEngines; }

}  // namespace shardwise::cpu
