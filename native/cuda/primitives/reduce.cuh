// Reductions over a warp and a block. The order of combinations is fixed, so two runs give the same
// bits. An op is a struct with `T operator()(T a, T b) const`; all lanes of the warp, all threads
// of the block take part.
#pragma once
#include <cstdint>

namespace shardwise::cuda {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kWarpSize = 32;

struct SumOp {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct ProductOp {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a * b;
  }
};
// NaN wins.
struct MaxOp {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return (a > b || a != a) ? a : b;
  }
};
struct MinOp {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return (a < b || a != a) ? a : b;
  }
};

// Shuffles any trivially copyable T of 4, 8, 12, 16 ... bytes.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int lane_mask) {
  static_assert(sizeof(T) % 4 == 0, "shuffle in 4-byte words");
  T out;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 4); i++)
    reinterpret_cast<uint32_t*>(&out)[i] =
        __shfl_xor_sync(kFullWarp, reinterpret_cast<const uint32_t*>(&value)[i], lane_mask);
  return out;
}

template <class T>
__device__ __forceinline__ T shuffle_up(T value, int delta) {
  static_assert(sizeof(T) % 4 == 0, "shuffle in 4-byte words");
  T out;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / 4); i++)
    reinterpret_cast<uint32_t*>(&out)[i] =
        __shfl_up_sync(kFullWarp, reinterpret_cast<const uint32_t*>(&value)[i], delta);
  return out;
}

// Every lane receives the result. `Width` lanes (a power of two) form a group.
template <int Width = kWarpSize, class T, class Op>
__device__ __forceinline__ T warp_reduce(T value, Op op) {
#pragma unroll
  for (int mask = Width / 2; mask > 0; mask >>= 1) value = op(value, shuffle_xor(value, mask));
  return value;
}

// Every thread receives the result. blockDim.x is a multiple of 32 (1-D blocks) and at most 1024;
// `shared` has one T per warp (32 suffice) and may be used again after the call.
template <class T, class Op>
__device__ __forceinline__ T block_reduce(T value, Op op, T identity, T* shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  value = warp_reduce(value, op);
  if (warps == 1) return value;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = lane < warps ? shared[lane] : identity;
  value = warp_reduce(value, op);
  __syncthreads();
  return value;
}

}  // namespace shardwise::cuda
