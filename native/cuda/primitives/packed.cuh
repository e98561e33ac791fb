// Converts 16 bytes of float32, float16 or bfloat16 to floats and back, with instructions for two
// 16-bit elements at once. Memory-bound kernels have some 25 instructions an element; a conversion
// should take one of them.
#pragma once
#include "dtype.cuh"
#include "vector.cuh"

namespace shardwise::cuda {

template <class T>
__device__ __forceinline__ void unpack(const uint4& raw, float (&out)[kVec16<T>]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(T) == 4) {
      out[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<T, bfloat16_t>) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  }
}

template <class T>
__device__ __forceinline__ uint4 pack(const float (&values)[kVec16<T>]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (sizeof(T) == 4) {
      words[i] = __float_as_uint(values[i]);
    } else if constexpr (std::is_same_v<T, bfloat16_t>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const uint32_t&>(pair);
    } else {
      const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      words[i] = reinterpret_cast<const uint32_t&>(pair);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The sum of two vectors, rounded once.
template <class T>
__device__ __forceinline__ uint4 packed_sum(const uint4& a, const uint4& b) {
  float left[kVec16<T>], right[kVec16<T>];
  unpack<T>(a, left);
  unpack<T>(b, right);
#pragma unroll
  for (int i = 0; i < kVec16<T>; i++) left[i] += right[i];
  return pack<T>(left);
}

// Hides from the compiler that a value is the same in every round of a loop: else it unpacks once,
// and keeps the floats in registers.
__device__ __forceinline__ void keep_packed(uint4& raw) {
  asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

// Fills a vector with `value`.
template <class T>
__device__ __forceinline__ uint4 packed_splat(float value) {
  float all[kVec16<T>];
#pragma unroll
  for (int i = 0; i < kVec16<T>; i++) all[i] = value;
  return pack<T>(all);
}

// Calls body(TypeTag<T>) for the three types; false for another dtype.
template <class F>
inline bool dispatch_packed(DType dtype, F&& body) {
  switch (dtype) {
    case DType::Float32:
      body(TypeTag<float>{});
      return true;
    case DType::Float16:
      body(TypeTag<half_t>{});
      return true;
    case DType::BFloat16:
      body(TypeTag<bfloat16_t>{});
      return true;
    default:
      return false;
  }
}

}  // namespace shardwise::cuda
