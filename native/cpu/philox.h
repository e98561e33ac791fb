// The random words of native/README.md, "Conventions of kernels": Philox4x32-10 by global element
// index. Word w of a stream is lane w % 4 of counter (w / 4, offset); element i of a float tensor
// owns word i, of a 64-bit draw words 2i (low half) and 2i + 1. Everything has internal linkage, so
// it may be compiled per instruction set.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace shardwise::cpu {

struct PhiloxKey {
  uint32_t key[2];
  uint32_t offset[2];
};

namespace {

[[maybe_unused]] static inline PhiloxKey philox_key(double seed_low, double seed_high,
                                                    double offset) {
  const uint64_t o = static_cast<uint64_t>(offset);
  return {{static_cast<uint32_t>(static_cast<int64_t>(seed_low)),
           static_cast<uint32_t>(static_cast<int64_t>(seed_high))},
          {static_cast<uint32_t>(o), static_cast<uint32_t>(o >> 32)}};
}

// The four words of one counter.
[[maybe_unused]] static inline __attribute__((always_inline)) void philox_block(
    const PhiloxKey& key, uint64_t counter, uint32_t* out) {
  uint32_t c0 = static_cast<uint32_t>(counter);
  uint32_t c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = key.offset[0];
  uint32_t c3 = key.offset[1];
  uint32_t k0 = key.key[0];
  uint32_t k1 = key.key[1];
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

#if defined(__SSE2__)
// A counter in every 64-bit lane. Uses intrinsics, because g++ does not vectorise the 32 x 32 -> 64
// multiplication otherwise.
#if defined(__AVX512F__)
typedef uint64_t PhiloxLanes __attribute__((vector_size(64)));
#define SW_PHILOX_MULTIPLY(a, b) \
  ((PhiloxLanes)_mm512_maskz_mul_epu32(0xff, (__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
typedef uint64_t PhiloxLanes __attribute__((vector_size(32)));
#define SW_PHILOX_MULTIPLY(a, b) ((PhiloxLanes)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#else
typedef uint64_t PhiloxLanes __attribute__((vector_size(16)));
#define SW_PHILOX_MULTIPLY(a, b) ((PhiloxLanes)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#endif
constexpr int64_t kPhiloxLanes = sizeof(PhiloxLanes) / 8;

// Four words for each of kPhiloxLanes counters. The multiplication ignores the undefined upper
// halves of lanes.
[[maybe_unused]] static inline __attribute__((always_inline)) void philox_group(
    const PhiloxKey& key, uint64_t counter, uint32_t* out) {
  PhiloxLanes c0, c1;
  for (int64_t i = 0; i < kPhiloxLanes; i++) c0[i] = counter + static_cast<uint64_t>(i);
  c1 = c0 >> 32;
  PhiloxLanes c2 = PhiloxLanes{} + key.offset[0];
  PhiloxLanes c3 = PhiloxLanes{} + key.offset[1];
  const PhiloxLanes m0 = PhiloxLanes{} + 0xD2511F53u;
  const PhiloxLanes m1 = PhiloxLanes{} + 0xCD9E8D57u;
  uint32_t k0 = key.key[0];
  uint32_t k1 = key.key[1];
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++) {
    const PhiloxLanes p0 = SW_PHILOX_MULTIPLY(c0, m0);
    const PhiloxLanes p1 = SW_PHILOX_MULTIPLY(c2, m1);
    c0 = (p1 >> 32) ^ c1 ^ (PhiloxLanes{} + k0);
    c2 = (p0 >> 32) ^ c3 ^ (PhiloxLanes{} + k1);
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const PhiloxLanes low = (c0 & 0xffffffffu) | (c1 << 32);
  const PhiloxLanes high = (c2 & 0xffffffffu) | (c3 << 32);
  uint64_t pairs[2][kPhiloxLanes];
  memcpy(pairs[0], &low, sizeof low);
  memcpy(pairs[1], &high, sizeof high);
  for (int64_t i = 0; i < kPhiloxLanes; i++) {
    memcpy(out + 4 * i, &pairs[0][i], 8);
    memcpy(out + 4 * i + 2, &pairs[1][i], 8);
  }
}
#endif

// Words [4 * counter, 4 * (counter + blocks)).
[[maybe_unused]] static __attribute__((noinline, noclone)) void philox_words(const PhiloxKey& key,
                                                                             uint64_t counter,
                                                                             int64_t blocks,
                                                                             uint32_t* out) {
  int64_t i = 0;
#if defined(__SSE2__)
  for (; i + kPhiloxLanes <= blocks; i += kPhiloxLanes)
    philox_group(key, counter + static_cast<uint64_t>(i), out + 4 * i);
#endif
  for (; i < blocks; i++) philox_block(key, counter + static_cast<uint64_t>(i), out + 4 * i);
}

[[maybe_unused]] static inline uint32_t philox_word(const PhiloxKey& key, uint64_t word) {
  uint32_t block[4];
  philox_block(key, word >> 2, block);
  return block[word & 3];
}

// In [0, 1).
[[maybe_unused]] static inline __attribute__((always_inline)) float uniform_float(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}
[[maybe_unused]] static inline __attribute__((always_inline)) double uniform_double(uint32_t low,
                                                                                    uint32_t high) {
  // Both halves are exact, and so is their sum; 32-bit conversions vectorise everywhere.
  return static_cast<double>(high) * 0x1p-32 +
         static_cast<double>(static_cast<int32_t>(low >> 11)) * 0x1p-53;
}

}  // namespace
}  // namespace shardwise::cpu
