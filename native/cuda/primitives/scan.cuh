// Prefix sums over a warp and a block, in a fixed order. An op is a struct with `T operator()(T a,
// T b) const`.
#pragma once
#include "reduce.cuh"

namespace shardwise::cuda {

// Lane i receives op(value 0, ..., value i).
template <class T, class Op>
__device__ __forceinline__ T warp_scan_inclusive(T value, Op op) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int delta = 1; delta < 32; delta <<= 1) {
    const T other = shuffle_up(value, delta);
    if (lane >= delta) value = op(other, value);
  }
  return value;
}

// Thread i receives op(identity, value 0, ..., value i-1), and `total` is the sum of all. For 1-D
// blocks of a multiple of 32 threads, at most 1024; `shared` holds 33 T and may be used again after
// the call.
template <class T, class Op>
__device__ __forceinline__ T block_scan_exclusive(T value, Op op, T identity, T* shared, T& total) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const T inclusive = warp_scan_inclusive(value, op);
  if (lane == 31) shared[warp] = inclusive;
  __syncthreads();
  if (warp == 0) {
    const T sum = warp_scan_inclusive(lane < warps ? shared[lane] : identity, op);
    const T before = shuffle_up(sum, 1);
    shared[lane] = lane == 0 ? identity : before;
    if (lane == 31) shared[32] = sum;
  }
  __syncthreads();
  const T previous = shuffle_up(inclusive, 1);
  const T base = shared[warp];
  total = shared[32];
  __syncthreads();
  return lane == 0 ? base : op(base, previous);
}

}  // namespace shardwise::cuda
