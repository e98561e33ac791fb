// bfloat16 products with vdpbf16ps: tiles of 14 x 32, each step multiplies pairs of neighbours
// along k and adds into float32. The instruction rounds each product and sum to nearest even and
// takes subnormal bfloat16 as zero.
#include "engine.h"

#if !defined(__AVX512BF16__) || !defined(__AVX512BW__) || !defined(__AVX512VL__)
#error "compile gemm_avx512_bf16.cc with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16"
#endif
#include <immintrin.h>

namespace shardwise::cpu {
namespace {

inline __mmask16 lanes16(int n) { return static_cast<__mmask16>((1u << n) - 1); }

// The part that pack.inc uses: vectors of pairs.
template <class T>
struct Vectors {
  typedef uint32_t V __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static void store(uint32_t* p, V v) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(v)); }
  static void store_partial(uint32_t* p, V v, int n) {
    _mm512_mask_storeu_epi32(p, lanes16(n), reinterpret_cast<__m512i>(v));
  }
};

struct Pairs {
  using Elem = uint32_t;
  using Sum = float;
  typedef float V __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kRows = 14;
  static V load(const uint32_t* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
  static V load_partial(const uint32_t* p, int n) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(lanes16(n), p));
  }
  static V load_sum(const float* p) { return _mm512_loadu_ps(p); }
  static V load_sum_partial(const float* p, int n) { return _mm512_maskz_loadu_ps(lanes16(n), p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void store_partial(float* p, V v, int n) { _mm512_mask_storeu_ps(p, lanes16(n), v); }
  static V broadcast(uint32_t x) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(x)));
  }
  static V splat(float x) { return _mm512_set1_ps(x); }
  static V multiply_add(V a, V b, V sum) {
#if defined(__clang__) && __clang_major__ < 18  // it crashes on the intrinsic of a broadcast
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#endif
  }
};

struct FromPairs {
  using Source = uint16_t;
  using Packed = uint32_t;
  using V = Vectors<uint32_t>::V;
  static constexpr int kUnit = 2;
  static constexpr int64_t kNothing = -1;

  typedef uint16_t Halves __attribute__((vector_size(32)));
  static V widen(const uint16_t* p, int n) {
    return __builtin_convertvector(
        reinterpret_cast<Halves>(_mm256_maskz_loadu_epi16(lanes16(n), p)), V);
  }
  static V across(const uint16_t* p, int64_t next, int n) {
    const V even = widen(p, n);
    return next == kNothing ? even : even | widen(p + next, n) << 16;
  }
  static V along(const uint16_t* p, int64_t left) {
    const __mmask32 lanes = left >= 32 ? ~0u : (1u << left) - 1;
    return reinterpret_cast<V>(_mm512_maskz_loadu_epi16(lanes, p));
  }
  static uint32_t one(const uint16_t* p, int64_t next) {
    return next == kNothing ? *p : *p | static_cast<uint32_t>(p[next]) << 16;
  }
};

}  // namespace

#include "micro.inc"
#include "pack.inc"

void use_avx512_bf16(Engine& bfloat16) {
  bfloat16.unit = 2;
  bfloat16.packed_bytes = 4;
  bfloat16.block = run_block<Pairs>;
  bfloat16.pack = pack_panels<FromPairs>;
}

}  // namespace shardwise::cpu
