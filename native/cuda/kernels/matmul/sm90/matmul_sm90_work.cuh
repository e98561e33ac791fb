// The tile scheduler of matmul_sm90.cuh: which work tile a cluster computes next. Work tiles are
// numbered from 0 and assigned statically, or, if there are many, taken from a counter. Then
// clusters that start late, because a collective occupies their SMs, leave work to the others; the
// assignment does not change the bits of a tile. The producer takes as many tiles ahead as there
// are consumers on different tiles, so that nobody waits for the counter's memory.
#pragma once
#include "../../../primitives/hopper.cuh"
#include "matmul_sm90_args.cuh"

namespace shardwise::cuda {

#if SW_SM90A

__device__ __forceinline__ uint32_t work_slot(uint32_t queue, int32_t at) {
  return queue + (at & (kWorkSlots - 1)) * 4;
}
// Its phase ends when the number of the tile has arrived; the slot's next phase is eight tiles
// later, and the first block is never that far ahead of the second.
__device__ __forceinline__ uint32_t handoff_barrier(uint32_t queue, int32_t at) {
  return queue + kWorkSlots * 4 + (at & (kWorkSlots - 1)) * 8;
}
__device__ __forceinline__ void wait_handoff(uint32_t queue, int32_t at) {
  barrier_expect(handoff_barrier(queue, at), 4);
  barrier_wait(handoff_barrier(queue, at), at / kWorkSlots & 1);
}

// The static assignment: this cluster computes tiles first, first + stride, ...
template <class C>
struct Sm90Work {
  int32_t first, stride;
  __device__ __forceinline__ explicit Sm90Work(const Sm90Args& p)
      : first(p.counter ? 0 : blockIdx.x / C::kSharers),
        stride(p.counter ? 1 : gridDim.x / C::kSharers) {}
};

template <class C>
__device__ __forceinline__ void put_work(uint32_t queue, int32_t at, int32_t work) {
  store_shared(work_slot(queue, at), static_cast<uint32_t>(work));
  if constexpr (C::kSharers > 1)
    store_in_cluster(work_slot(queue, at), handoff_barrier(queue, at), static_cast<uint32_t>(work),
                     1);
}

// Called by all threads before the first tile.
template <class C>
__device__ __forceinline__ void take_first_work(const Sm90Args& p, uint32_t queue) {
  const uint32_t rank = C::kSharers > 1 ? cluster_rank() : 0;
  if (threadIdx.x == 0) {
    if (rank == 0) {
      const int32_t first = p.counter.take(C::kAhead);
#pragma unroll
      for (int i = 0; i < C::kAhead; i++) put_work<C>(queue, i, first + i);
    } else {
#pragma unroll
      for (int i = 0; i < C::kAhead; i++) wait_handoff(queue, i);
    }
  }
  __syncthreads();
}

// The producer's queue of tiles taken ahead. It calls `publish` for each tile before any of its
// stages is full.
template <class C>
struct Sm90Taker {
  int32_t pending = 0;  // the tile after the published ones, in flight from the counter
  bool leads;

  __device__ __forceinline__ explicit Sm90Taker(const Sm90Args& p)
      : leads(C::kSharers == 1 || cluster_rank() == 0) {
    if (p.counter && leads) pending = p.counter.take(1);
  }
  // A slot is written again 8 tiles later, when all threads have read it: the stages limit the
  // producer's lead to two tiles.
  __device__ __forceinline__ void publish(const Sm90Args& p, uint32_t queue, int32_t at) {
    if (!p.counter) return;
    const int32_t next = at + C::kAhead;
    if (leads) {
      put_work<C>(queue, next, pending);
      pending = p.counter.take(1);
    } else {
      wait_handoff(queue, next);
    }
  }
  __device__ __forceinline__ void finish(const Sm90Args& p) const {
    if (p.counter && leads) p.counter.finish(gridDim.x / C::kSharers);
  }
};

#endif

}  // namespace shardwise::cuda
