// Philox4x32-10 as native/README.md defines it: key = seed, counter = (element index / 4, offset),
// lane = element index % 4.
#pragma once
#include <cstdint>

namespace shardwise::cuda {

struct PhiloxKey {
  uint32_t seed_low = 0, seed_high = 0;
  uint64_t offset = 0;

  PhiloxKey() = default;
  __host__ PhiloxKey(double low, double high, double offset_)
      : seed_low(static_cast<uint32_t>(static_cast<int64_t>(low))),
        seed_high(static_cast<uint32_t>(static_cast<int64_t>(high))),
        offset(static_cast<uint64_t>(offset_)) {}
};

// The four 32-bit words of one counter.
__device__ __forceinline__ uint4 philox(const PhiloxKey& key, uint64_t counter) {
  uint32_t k0 = key.seed_low, k1 = key.seed_high;
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(key.offset), c3 = static_cast<uint32_t>(key.offset >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

__device__ __forceinline__ uint32_t word_of(const uint4& words, int lane) {
  return lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w;
}

__device__ __forceinline__ float uniform_float(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 5.9604644775390625e-8f;
}

// 64 bits from two lanes: the even lane is the low half.
__device__ __forceinline__ uint64_t join_words(uint32_t low, uint32_t high) {
  return (static_cast<uint64_t>(high) << 32) | low;
}

__device__ __forceinline__ double uniform_double(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 1.1102230246251565e-16;
}

}  // namespace shardwise::cuda
