// Streams rows from global memory to persistent thread groups: a ring of rows in shared memory,
// filled by cp.async.
//
// A group is `lanes` threads of a warp (a power of two), or a block. It takes the rows first, first
// + step ...; vector v of a row (16 bytes) belongs to thread v % lanes of the group, kChunks
// vectors a thread. Each thread reads only what it copied itself, so the copies need no barrier.
// kStages - 1 rows are always in flight: a streaming kernel needs some 25 KB in flight per SM of an
// H200 (bandwidth times latency), whatever its arithmetic. For rows of whole vectors on 16-byte
// boundaries; row_tile.cuh serves all others.
#pragma once
#include <type_traits>

#include "../stream.h"
#include "async_copy.cuh"
#include "dtype.cuh"
#include "reduce.cuh"
#include "vector.cuh"

namespace shardwise::cuda {

// The position of a thread in its group.
struct RingPlace {
  int32_t lanes, slot;
  int64_t first, step;  // rows of this group

  __device__ __forceinline__ explicit RingPlace(int32_t group_lanes) : lanes(group_lanes) {
    const int32_t groups = blockDim.x / lanes, group = threadIdx.x / lanes;
    slot = threadIdx.x - group * lanes;
    first = static_cast<int64_t>(blockIdx.x) * groups + group;
    step = static_cast<int64_t>(gridDim.x) * groups;
  }
};

template <int kOperands, int kChunks, int kStages>
struct RowRing {
  static constexpr int64_t bytes(int threads) {
    return int64_t(kStages) * kOperands * kChunks * 16 * threads;
  }

  uint4* slots;  // [stage][operand][chunk][thread]

  __device__ __forceinline__ uint4* at(int stage, int operand, int chunk) const {
    return slots + ((stage * kOperands + operand) * kChunks + chunk) * blockDim.x + threadIdx.x;
  }
  // Copies a thread's vectors of a row of `vectors` vectors into a stage. Slots beyond the end keep
  // their contents.
  __device__ __forceinline__ void fetch(int stage, const uint4* const (&rows)[kOperands], int slot,
                                        int lanes, int vectors) const {
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = slot + c * lanes;
      if (v < vectors)
#pragma unroll
        for (int o = 0; o < kOperands; o++) copy_async(at(stage, o, c), rows[o] + v);
    }
  }
};

// Sums N values over a group; every thread receives the results. For blocks: `shared` has two
// halves used in turn, so that one barrier a call is enough; `turn` counts the calls.
template <bool kBlock, int N>
__device__ __forceinline__ void ring_sum(float (&values)[N], int lanes, int& turn,
                                         float (&shared)[2][N][32]) {
  if constexpr (!kBlock) {
    for (int mask = lanes >> 1; mask > 0; mask >>= 1)
#pragma unroll
      for (int k = 0; k < N; k++) values[k] += __shfl_xor_sync(kFullWarp, values[k], mask);
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) values[k] = warp_reduce(values[k], SumOp{});
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5, half = turn++ & 1;
    if (lane == 0)
#pragma unroll
      for (int k = 0; k < N; k++) shared[half][k][threadIdx.x >> 5] = values[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) {
      values[k] = lane < warps ? shared[half][k][lane] : 0.0f;
      values[k] = warp_reduce(values[k], SumOp{});
    }
  }
}

// Launch parameters of a ring kernel. lanes 0: the rows do not fit.
struct RingPlan {
  int32_t chunks = 0, lanes = 0, threads = 0;
  bool block = false;
  int64_t groups() const { return threads / lanes; }
};

// Rows of `vectors` vectors: a part of a warp up to 4 vectors a thread, else a block with
// `block_chunks` a thread.
inline RingPlan plan_ring(int64_t vectors, int32_t block_chunks, int32_t max_threads) {
  RingPlan plan;
  if (vectors <= 0) return plan;
  if (vectors <= 128) {
    plan.chunks = static_cast<int32_t>(ceil_div(vectors, 32));
    plan.lanes = 32;
    if (plan.chunks == 1)
      while (plan.lanes > 1 && plan.lanes / 2 >= vectors) plan.lanes /= 2;
    plan.threads = 256;
  } else if (vectors <= int64_t(block_chunks) * max_threads) {
    plan.block = true;
    plan.chunks = block_chunks;
    plan.lanes = plan.threads = static_cast<int32_t>(round_up(ceil_div(vectors, block_chunks), 32));
  }
  return plan;
}

// Blocks for `rows` rows: as many as fit at once, at most one for each group of rows. 0 if a block
// needs too much shared memory.
template <class K>
inline int64_t ring_blocks(K* kernel, const RingPlan& plan, int64_t bytes, int64_t rows,
                           int64_t blocks_per_sm, const DeviceFacts& facts) {
  if (bytes + 2048 > facts.max_shared_per_block) return 0;
  allow_shared(kernel, static_cast<size_t>(bytes), true);
  const int64_t by_shared = (int64_t(facts.max_shared_per_block) + 1024) / (bytes + 2048);
  const int64_t blocks = facts.num_sms * (by_shared < blocks_per_sm ? by_shared : blocks_per_sm);
  const int64_t needed = ceil_div(rows, plan.groups());
  return needed < blocks ? needed : blocks;
}

}  // namespace shardwise::cuda
