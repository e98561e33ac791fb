// Sums of exponentials of a row in one read, over a block and over a cluster of blocks, and how blocks of a cluster keep a row in
// their shared memory. Used where rows are whole 16-byte vectors.
#pragma once
#include <cmath>

#include "../stream.h"
#include "async_copy.cuh"
#include "packed.cuh"
#include "reduce.cuh"

namespace shardwise::cuda {

// exp(v - base) of elements of type T. For 16-bit types as a power of two: one multiply-add and one instruction. A base of -inf
// counts as 0, so that a row of -inf has the sum 0 and its softmax is NaN by division.
template <class T>
struct RowExponential {
  float base;
  __device__ __forceinline__ explicit RowExponential(float of) {
    base = of == -INFINITY ? 0.0f : of;
    if constexpr (sizeof(T) == 2) base *= 1.4426950408889634f;
  }
  __device__ __forceinline__ float operator()(float v) const {
    if constexpr (sizeof(T) == 2) {
      float out;
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(fmaf(v, 1.4426950408889634f, -base)));
      return out;
    } else {
      return expf(v - base);
    }
  }
};

// The running maximum and the sum of exp(value - maximum) of elements of type T. A NaN or +inf makes the sum NaN; -inf adds nothing.
template <class T>
struct RunningSum {
  float maximum = -INFINITY, sum = 0.0f;

  __device__ __forceinline__ void add(const float (&values)[kVec16<T>]) {
    constexpr int V = kVec16<T>;
    float next = values[0];
#pragma unroll
    for (int i = 1; i < V; i++) next = fmaxf(next, values[i]);
    if (next > maximum) {
      sum *= RowExponential<T>(next)(maximum);
      maximum = next;
    }
    const RowExponential<T> exponential(maximum);
    float part = 0.0f;
#pragma unroll
    for (int i = 0; i < V; i++) part += exponential(values[i]);
    sum += part;
  }
  __device__ __forceinline__ void merge(float other_maximum, float other_sum) {
    const float next = fmaxf(maximum, other_maximum);
    const RowExponential<T> exponential(next);
    sum = sum * exponential(maximum) + other_sum * exponential(other_maximum);
    maximum = next;
  }
  __device__ __forceinline__ void merge_warp() {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) {
      const float other_maximum = __shfl_xor_sync(kFullWarp, maximum, mask), other_sum = __shfl_xor_sync(kFullWarp, sum, mask);
      // The same order in both lanes, so that both hold the same bits.
      RunningSum low = *this;
      if (threadIdx.x & mask) low.maximum = other_maximum, low.sum = other_sum;
      low.merge(threadIdx.x & mask ? maximum : other_maximum, threadIdx.x & mask ? sum : other_sum);
      *this = low;
    }
  }
};

struct RunningSumScratch {
  float2 warps[32];
  float2 block;
};

__device__ __forceinline__ void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Over the block, and over `cluster` blocks if that is more than 1; every thread receives the result. A block of a cluster must
// call cluster_wait() before it ends: others may still read its scratch.
template <class T>
__device__ __forceinline__ RunningSum<T> merge_all(RunningSum<T> own, int cluster, RunningSumScratch& shared) {
  own.merge_warp();
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  if (lane == 0) shared.warps[threadIdx.x >> 5] = make_float2(own.maximum, own.sum);
  __syncthreads();
  const float2 part = lane < warps ? shared.warps[lane] : make_float2(-INFINITY, 0.0f);
  own.maximum = part.x;
  own.sum = part.y;
  own.merge_warp();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (cluster > 1) {
    if (threadIdx.x == 0) shared.block = make_float2(own.maximum, own.sum);
    cluster_arrive();
    cluster_wait();
    RunningSum<T> all;
    for (int rank = 0; rank < cluster; rank++) {
      uint64_t address;
      asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(reinterpret_cast<uint64_t>(&shared.block)), "r"(rank));
      const float2 other = *reinterpret_cast<const float2*>(address);
      all.merge(other.x, other.y);
    }
    own = all;
    cluster_arrive();
  }
#endif
  return own;
}

// A row spread over the shared memory of a cluster of blocks: block `rank` has `own` vectors from `begin`. Each thread reads back
// only what it copied.
struct RowSlice {
  int32_t begin, own;

  __device__ __forceinline__ RowSlice(int32_t vectors, int32_t cluster, int32_t rank) {
    const int32_t share = (vectors + cluster - 1) / cluster;
    begin = rank * share;
    own = vectors - begin < share ? vectors - begin : share;
    if (own < 0) own = 0;
  }
  __device__ __forceinline__ void fetch(uint4* to, const uint4* row) const {
#pragma unroll 4
    for (int32_t v = threadIdx.x; v < own; v += blockDim.x) copy_async(to + v, row + begin + v);
    copy_async_commit();
  }
};

constexpr int kSliceThreads = 512;

// The blocks for a row of `vectors` vectors: the fewest whose slices are at most 66 KB, so that three fit on a multiprocessor and one
// loads while another computes. Without clusters, or beyond 8, larger slices. 0: does not fit.
inline int32_t slice_cluster(int64_t vectors, const DeviceFacts& facts) {
  int32_t cluster = 1;
  if (facts.major >= 9)
    while (cluster < 8 && vectors * 16 > cluster * int64_t(66 * 1024)) cluster *= 2;
  return ceil_div(vectors, cluster) * 16 + 2048 <= facts.max_shared_per_block ? cluster : 0;
}

// Starts `kernel` with a cluster of blocks for each row and a slice of the row in the shared memory of each.
template <class... Params, class... Args>
inline void launch_slices(void (*kernel)(Params...), int64_t rows, int64_t vectors, int32_t cluster, cudaStream_t stream, Args... args) {
  const size_t bytes = static_cast<size_t>(ceil_div(vectors, cluster)) * 16;
  allow_shared(kernel, bytes, true);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(rows * cluster));
  config.blockDim = dim3(kSliceThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace shardwise::cuda
