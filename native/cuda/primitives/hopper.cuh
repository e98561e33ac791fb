// Hopper's asynchronous instructions (sm_90a) as thin wrappers over PTX: mbarriers with parity
// waits, the bulk tensor copy engine (TMA), clusters, register reallocation, stmatrix. Code that
// uses them is inside `#if SW_SM90A`.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "async_copy.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SW_SM90A 1
#else
#define SW_SM90A 0
#endif

#if SW_SM90A
namespace shardwise::cuda {

// ---- mbarrier. All addresses are of the shared window ------------------------------------------

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the barrier at the same address in block `rank` of the cluster. Not
// `.release.cluster`: nothing was written, and the fence that it implies costs a third of a matmul.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
      " mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// Arrives, and makes the phase wait for `bytes` that the copy engine will deliver.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits until the phase with this parity is complete. A new barrier is in phase 0, so a wait for
// parity 1 returns at once.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred done;\n again:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n "
      "@done bra over;\n bra again;\n "
      "over:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- the copy engine ---------------------------------------------------------------------------

__device__ __forceinline__ void tensor_map_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}
// Loads the box of a tensor with its corner at (x, y, z) to shared memory; `barrier` counts the
// bytes.
__device__ __forceinline__ void tensor_load(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                            int32_t x, int32_t y, int32_t z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5}], [%2];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tensor_load(uint32_t to, const CUtensorMap* map, uint32_t barrier,
                                            int32_t x, int32_t y, int32_t z, int32_t w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [%2];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
// Loads `bytes` contiguous bytes; addresses and size are multiples of 16.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Loads the same box to the same address of every block in `mask`; each block's barrier counts it.
__device__ __forceinline__ void tensor_load_multicast(uint32_t to, const CUtensorMap* map,
                                                      uint32_t barrier, int32_t x, int32_t y,
                                                      int32_t z, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster [%0], [%1, {%3, %4, %5}], "
      "[%2], %6;" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(mask)
      : "memory");
}
// Prefetches the box to L2. Reads nothing, so it may precede pdl_wait().
__device__ __forceinline__ void tensor_prefetch(const CUtensorMap* map, int32_t x, int32_t y,
                                                int32_t z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(
                   reinterpret_cast<uint64_t>(map)),
               "r"(x), "r"(y), "r"(z)
               : "memory");
}
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, uint32_t from, int32_t x,
                                             int32_t y, int32_t z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
          reinterpret_cast<uint64_t>(map)),
      "r"(from), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, uint32_t from, int32_t x,
                                             int32_t y, int32_t z, int32_t w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          reinterpret_cast<uint64_t>(map)),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void tensor_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until the shared memory of all but the newest Pending stores of this thread has been read.
template <int Pending>
__device__ __forceinline__ void tensor_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Makes ordinary writes to shared memory visible to the copy engine after the next barrier.
__device__ __forceinline__ void fence_for_copy_engine() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- clusters, registers, barriers of some warps -----------------------------------------------

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ int32_t cluster_size() {
  int32_t blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ float4 load_from_cluster(uint32_t address, uint32_t rank) {
  float4 v;
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %4, %5;\n"
      " ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

// Stores a word in block `rank`, whose barrier at the same address counts its 4 bytes on arrival.
__device__ __forceinline__ void store_in_cluster(uint32_t address, uint32_t barrier, uint32_t value,
                                                 uint32_t rank) {
  asm volatile(
      "{\n .reg .b32 to, counts;\n mapa.shared::cluster.u32 to, %0, %3;\n mapa.shared::cluster.u32 "
      "counts, %1, %3;\n"
      " st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [to], %2, [counts];\n}" ::
          "r"(address),
      "r"(barrier), "r"(value), "r"(rank)
      : "memory");
}
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

template <int Registers>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Marks a value as equal in all lanes of the warp, so that the compiler computes descriptors from
// it in uniform registers.
__device__ __forceinline__ int32_t warp_uniform(int32_t value) {
  return __shfl_sync(0xffffffffu, value, 0);
}

// Loads a number in shared memory for a warp. Only its first lane reads, so that this lane's later
// arrival at a barrier implies the read.
__device__ __forceinline__ int32_t load_for_warp(uint32_t address) {
  return warp_uniform((threadIdx.x & 31) == 0 ? static_cast<int32_t>(load_shared(address)) : 0);
}

// Hardware barrier `id` (1 to 15) of `threads` threads.
__device__ __forceinline__ void sync_threads_of(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives at barrier `id` for the threads that sync there; does not wait.
__device__ __forceinline__ void arrive_for_threads_of(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Stores four 8 x 8 matrices of 16-bit elements to shared memory; lane l gives the address of row l
// % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

}  // namespace shardwise::cuda
#endif
