// Work items 0, 1, ... that workers (blocks, clusters) take from a counter in device memory, so
// that late workers leave items to the others. The last worker to find none resets the counter for
// the next kernel of the stream.
#pragma once
#include <cstdint>

namespace shardwise::cuda {

struct WorkCounter {
  int32_t *taken = nullptr, *finished = nullptr;  // items taken so far, workers that found none

  __device__ __forceinline__ explicit operator bool() const { return taken != nullptr; }
  // Takes `items` consecutive items; returns the first.
  __device__ __forceinline__ int32_t take(int32_t items) const { return atomicAdd(taken, items); }
  // Called once by each worker, after its last item.
  __device__ __forceinline__ void finish(int32_t workers) const {
    __threadfence();
    if (atomicAdd(finished, 1) != workers - 1) return;
    atomicExch(taken, 0);
    atomicExch(finished, 0);
  }
};

}  // namespace shardwise::cuda
