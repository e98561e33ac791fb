// Sums of exponentials of a row in one read, over a block and over a cluster of blocks; rows in the
// shared memory of a cluster. For rows of whole 16-byte vectors.
#pragma once
#include <type_traits>

#include "../stream.h"
#include "async_copy.cuh"
#include "online_sum.cuh"
#include "packed.cuh"
#include "reduce.cuh"

namespace shardwise::cuda {

struct OnlineSumScratch {
  float2 warps[32];
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

// Merges over the block, and over `cluster` blocks (up to 8) if that is more than 1; every thread
// receives the result. A block of a cluster must call cluster_wait() before it ends: others may
// still read its scratch.
template <class T>
__device__ __forceinline__ OnlineSum<T> merge_all(OnlineSum<T> own, int cluster,
                                                  OnlineSumScratch& shared) {
  own.merge_lanes(32);
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  if (lane == 0) shared.warps[threadIdx.x >> 5] = make_float2(own.maximum, own.sum);
  OnlineSum<T> all = OnlineSum<T>::empty();
  auto add = [&](float2 part) { all = MergeOnlineSums<T>{}(all, {part.x, part.y}); };
  if (cluster == 1) {
    __syncthreads();
    if (lane < warps) add(shared.warps[lane]);
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cluster_arrive();
    cluster_wait();
    // the warps of all blocks, a few for each lane
    for (int i = lane; i < cluster * warps; i += 32) {
      uint64_t address;
      asm volatile("mapa.u64 %0, %1, %2;"
                   : "=l"(address)
                   : "l"(reinterpret_cast<uint64_t>(&shared.warps[i % warps])), "r"(i / warps));
      add(*reinterpret_cast<const float2*>(address));
    }
    cluster_arrive();
#endif
  }
  all.merge_lanes(32);
  return all;
}

// Sums over the block, and over `cluster` blocks if that is more than 1; cluster_wait() as above.
__device__ __forceinline__ float sum_all(float own, int cluster, float (&shared)[32]) {
  own = warp_reduce(own, SumOp{});
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  if (lane == 0) shared[threadIdx.x >> 5] = own;
  float all = 0.0f;
  if (cluster == 1) {
    __syncthreads();
    if (lane < warps) all = shared[lane];
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cluster_arrive();
    cluster_wait();
    for (int i = lane; i < cluster * warps; i += 32) {
      uint64_t address;
      asm volatile("mapa.u64 %0, %1, %2;"
                   : "=l"(address)
                   : "l"(reinterpret_cast<uint64_t>(&shared[i % warps])), "r"(i / warps));
      all += *reinterpret_cast<const float*>(address);
    }
    cluster_arrive();
#endif
  }
  return warp_reduce(all, SumOp{});
}

// The slice of a row in the shared memory of a block of a cluster: block `rank` has `own` vectors
// from `begin` on. Each thread reads only what it copied, vector by vector as they arrive.
template <int kThreads>
struct RowSlice {
  static constexpr int kGroups = 8;
  int32_t begin, own;

  __device__ __forceinline__ RowSlice(int32_t vectors, int32_t cluster, int32_t rank) {
    const int32_t share = (vectors + cluster - 1) / cluster;
    begin = rank * share;
    own = vectors - begin < share ? vectors - begin : share;
    if (own < 0) own = 0;
  }
  __device__ __forceinline__ void fetch(uint4* to, const uint4* row) const {
    int32_t v = threadIdx.x;
#pragma unroll
    for (int k = 0; k < kGroups - 1; k++, v += kThreads) {
      if (v < own) copy_async(to + v, row + begin + v);
      copy_async_commit();
    }
    for (; v < own; v += kThreads) copy_async(to + v, row + begin + v);
    copy_async_commit();
  }
  // Calls body(v) for the vectors of this thread, each as soon as it has arrived.
  template <int kGroup = 0, class F>
  __device__ __forceinline__ void as_they_arrive(F&& body) const {
    copy_async_wait<kGroups - 1 - kGroup>();
    int32_t v = threadIdx.x + kGroup * kThreads;
    if constexpr (kGroup < kGroups - 1) {
      if (v < own) body(v);
      as_they_arrive<kGroup + 1>(body);
    } else {
      for (; v < own; v += kThreads) body(v);
    }
  }
  // Calls body(v) for all vectors of this thread, which have arrived.
  template <class F>
  __device__ __forceinline__ void use(F&& body) const {
#pragma unroll 2
    for (int32_t v = threadIdx.x; v < own; v += kThreads) body(v);
  }
  // The same, and refills each slot with its vector of row `next` (null: none), grouped as in
  // fetch.
  template <class F>
  __device__ __forceinline__ void use_and_refill(uint4* staged, const uint4* next, F&& body) const {
    const auto use = [&](int32_t v) {
      body(v);
      if (next) copy_async(staged + v, next + begin + v);
    };
    int32_t v = threadIdx.x;
#pragma unroll
    for (int k = 0; k < kGroups - 1; k++, v += kThreads) {
      if (v < own) use(v);
      copy_async_commit();
    }
    for (; v < own; v += kThreads) use(v);
    copy_async_commit();
  }
};

// The rows of a cluster in a persistent grid.
struct ClusterRows {
  int64_t first, step;
  int32_t rank;
  __device__ __forceinline__ explicit ClusterRows(int32_t cluster)
      : first(blockIdx.x / cluster),
        step(gridDim.x / cluster),
        rank(static_cast<int32_t>(blockIdx.x % cluster)) {}
};

// The blocks for a row of `vectors` vectors: the fewest whose slices are at most `wanted` bytes, so
// that several fit on an SM and one loads while another computes. Without clusters, or beyond
// `largest` (8; 16 on devices that allow it), slices are larger. 0: the row does not fit.
inline int32_t slice_cluster(int64_t vectors, int64_t wanted, const DeviceFacts& facts,
                             int32_t largest = 8) {
  int32_t cluster = 1;
  if (facts.major >= 9)
    while (cluster < largest && vectors * 16 > cluster * wanted) cluster *= 2;
  return ceil_div(vectors, cluster) * 16 + 2048 <= facts.max_shared_per_block ? cluster : 0;
}

// The number of clusters of a kernel that run at once. Asks the driver once per thread, kernel,
// configuration and device.
inline int64_t clusters_at_once(const void* kernel, const cudaLaunchConfig_t& config,
                                int32_t cluster, const DeviceFacts& facts) {
  struct Known {
    const void* kernel;
    int device;
    int32_t cluster;
    size_t bytes;
    int count;
  };
  static thread_local Known known[32] = {};
  int device = 0;
  cudaGetDevice(&device);
  Known& slot =
      known[((reinterpret_cast<uintptr_t>(kernel) >> 4) + static_cast<size_t>(cluster)) % 32];
  if (slot.kernel == kernel && slot.device == device && slot.cluster == cluster &&
      slot.bytes == config.dynamicSmemBytes)
    return slot.count;
  int count = 0;
  if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess || count < 1) {
    cudaGetLastError();  // a grid of more clusters than run at once is still correct
    count = facts.num_sms;
  }
  slot = {kernel, device, cluster, config.dynamicSmemBytes, count};
  return count;
}

// Threads of a block: persistent clusters need more registers.
constexpr int slice_threads(bool persistent) { return persistent ? 384 : 512; }

// Calls body(persistent): clusters of several blocks are persistent, since each start waits for all
// of them; single blocks are faster with a row each.
template <class F>
inline void with_persistence(int32_t cluster, F&& body) {
  if (cluster > 1) return body(std::true_type{});
  body(std::false_type{});
}

// Starts `kernel` with a cluster of blocks for each row and a slice of the row, `vectors` in all,
// in the shared memory of each block; persistent: as many clusters as run at once, which take row
// after row.
template <bool kPersistent, class... Params, class... Args>
inline void launch_slices(void (*kernel)(Params...), int64_t rows, int64_t vectors, int32_t cluster,
                          const Stream& stream, Args... args) {
  const size_t bytes = static_cast<size_t>(ceil_div(vectors, cluster)) * 16;
  allow_shared(kernel, bytes, true);
  if (cluster > 8)
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                         cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(rows * cluster));
  config.blockDim = dim3(slice_threads(kPersistent));
  config.dynamicSmemBytes = bytes;
  config.stream = stream.handle;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  if (kPersistent) {
    const int64_t most =
        clusters_at_once(reinterpret_cast<const void*>(kernel), config, cluster, *stream.facts);
    if (rows > most) config.gridDim = dim3(static_cast<unsigned>(most * cluster));
  }
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace shardwise::cuda
