// The kernel of matmul_sm90.cu as a template; that file has the description.
#pragma once
#include "../../../primitives/mma.cuh"
#include "../../../primitives/wgmma.cuh"
#include "matmul_sm90_work.cuh"

namespace shardwise::cuda {

#if SW_SM90A

// A work tile: the cluster's tile, and which split of k (up to 132 splits of 2^24 steps).
struct Sm90WorkTile {
  int32_t tile, part, row, column, batch, k_first, k_blocks;
  __device__ __forceinline__ Sm90WorkTile(const Sm90Args& p, int32_t work) {
    tile = work, part = 0, k_first = 0, k_blocks = p.k_blocks;
    if (p.split > 1) {
      tile = work / p.split;
      part = work % p.split;
      k_first = part * p.k_blocks / p.split;
      k_blocks = (part + 1) * p.k_blocks / p.split - k_first;
    }
    const int32_t per_batch = p.tiles_m * p.tiles_n;
    batch = tile / per_batch;
    const int32_t in_batch = tile % per_batch, per_group = p.group * p.tiles_n;
    const int32_t first = in_batch / per_group * p.group, in_group = in_batch % per_group;
    const int32_t height = p.tiles_m - first < p.group ? p.tiles_m - first : p.group;
    row = first + in_group % height;
    column = in_group / height;
  }
};

// The producer: fills the stages for tile after tile.
template <class C>
__device__ __forceinline__ void sm90_produce(const Sm90Args& p, const CUtensorMap* map_a,
                                             const CUtensorMap* map_b, uint32_t shared,
                                             uint32_t full, uint32_t empty) {
  const uint32_t rank = C::kSharers > 1 ? cluster_rank() : 0, queue = shared + C::kQueue;
  const Sm90Work<C> mine(p);
  Sm90Taker<C> taker(p);
  int32_t stage = 0;
  uint32_t phase = 0;
  for (int32_t at = mine.first;; at += mine.stride) {
    // `p.work` or more after the last
    const int32_t work = p.counter ? load_shared(work_slot(queue, at)) : at;
    if (work >= p.work) break;
    const Sm90WorkTile place(p, work);
    taker.publish(p, queue, at);
    const int32_t row = (place.row * C::kClusterM + (C::kClusterM > 1 ? rank : 0)) * C::BM;
    const int32_t column = (place.column * C::kClusterN + (C::kClusterN > 1 ? rank : 0)) * C::BN;
    const int32_t za = place.batch * p.batched_a, zb = place.batch * p.batched_b;
    for (int32_t i = 0; i < place.k_blocks; i++) {
      const int32_t k = (place.k_first + i) * 64;
      const uint32_t a = shared + stage * C::kStageBytes, b = a + C::kBytesA,
                     ready = full + stage * 8;
      barrier_wait(empty + stage * 8, phase ^ 1);
      barrier_expect(ready, C::kStageBytes);
      if constexpr (C::kClusterN == 1) {
        if constexpr (!C::kMajorA) {
          tensor_load(a, map_a, ready, k, row, za);
        } else {
#pragma unroll
          for (int g = 0; g < C::BM / 64; g++)
            tensor_load(a + g * kGroupBytes, map_a, ready, row + g * 64, k, za);
        }
      } else if constexpr (!C::kMajorA) {
        const int32_t part = rank * (C::BM / 2);
        tensor_load_multicast(a + part * 128, map_a, ready, k, row + part, za, 3);
      } else {
#pragma unroll
        for (int g = 0; g < C::BM / 64; g++)
          tensor_load_multicast(a + g * kGroupBytes + rank * 4096, map_a, ready, row + g * 64,
                                k + rank * 32, za, 3);
      }
      if constexpr (C::kClusterM == 1) {
        if constexpr (!C::kMajorB) {
          tensor_load(b, map_b, ready, k, column, zb);
        } else {
#pragma unroll
          for (int g = 0; g < (C::BN + 63) / 64; g++)
            tensor_load(b + g * kGroupBytes, map_b, ready, column + g * 64, k, zb);
        }
      } else if constexpr (!C::kMajorB) {
        const int32_t part = rank * (C::BN / 2);
        tensor_load_multicast(b + part * 128, map_b, ready, k, column + part, zb, 3);
      } else {
#pragma unroll
        for (int g = 0; g < (C::BN + 63) / 64; g++)
          tensor_load_multicast(b + g * kGroupBytes + rank * 4096, map_b, ready, column + g * 64,
                                k + rank * 32, zb, 3);
      }
      if (++stage == C::kStages) stage = 0, phase ^= 1;
    }
  }
  taker.finish(p);
}

// Adds beta c to one chunk of 64 rows; sm90_put writes it with ordinary stores if `direct`. `row`
// and `column` are those of the lane's first element. Chunk by chunk, so that few addresses are
// live beside the accumulators.
template <class T>
__device__ __forceinline__ void sm90_add(const Sm90Args& p, float* sums, int done, int32_t row,
                                         int32_t column, int32_t batch) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (row + half * 8 >= p.m) return;
    const T* const c = static_cast<const T*>(p.c.data) + batch * p.c.batch_stride +
                       (row + half * 8) * p.c.row_stride + column * p.c.column_stride;
#pragma unroll
    for (int j = 0; j < 16; j++) {
      const int32_t step = j / 2 * 8 + j % 2;
      if (j >= done && column + step < p.n)
        sums[j / 2 * 4 + half * 2 + j % 2] +=
            p.beta * to_compute<float>(c[step * p.c.column_stride]);
    }
  }
}
template <class T>
__device__ __forceinline__ void sm90_put(const Sm90Args& p, const float* sums, int32_t row,
                                         int32_t column, int32_t batch) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (row + half * 8 >= p.m) return;
    T* const y = static_cast<T*>(p.y.data) + batch * p.y.batch_stride +
                 (row + half * 8) * p.y.row_stride + column;
#pragma unroll
    for (int j = 0; j < 16; j++) {
      const int32_t step = j / 2 * 8 + j % 2;
      if (column + step < p.n) y[step] = from_compute<T>(sums[j / 2 * 4 + half * 2 + j % 2]);
    }
  }
}

// Writes a consumer's accumulators: `row` and `column` are those of its first element, `buffers`
// its output buffers.
template <class C>
__device__ __forceinline__ void sm90_write(const Sm90Args& p, const CUtensorMap* map_y,
                                           float (&sums)[C::MI][C::BN / 2], uint32_t buffers,
                                           int32_t row, int32_t column, int32_t batch) {
  using T = typename C::T;
  const int thread = threadIdx.x & 127, warp = thread >> 5, lane = thread & 31,
            group = threadIdx.x >> 7;
  // Chunk by chunk (all at once if each has a buffer): wait until the buffer has been stored, fill
  // it, pass it to the copy engine.
  constexpr int kAtOnce = C::kBuffers == C::kChunks ? C::kChunks : 1,
                kPending = C::kBuffers / kAtOnce - 1;
  const uint32_t line = buffers + (warp * 16 + (lane & 15)) * 128;
  const auto first_column = [](int c) {
    const int start = c % C::kPerRow * 64;
    return start + 64 <= C::BN ? start : C::BN - 64;
  };
#pragma unroll
  for (int c = 0; c < C::kChunks; c++) {
    if (c % kAtOnce == 0) {
      if (thread == 0) tensor_store_wait_read<kPending>();
      sync_threads_of(group, 128);
    }
    const int start = first_column(c);
    const int done = c % C::kPerRow * 64 - start;  // columns that the previous chunk also has
    float* const values = &sums[c / C::kPerRow][start / 2];
    if (p.alpha != 1.0f) {
#pragma unroll
      for (int j = 0; j < 32; j++)
        if (j >= done / 2) values[j] *= p.alpha;
    }
    const int32_t lane_row = row + c / C::kPerRow * 64 + warp * 16 + (lane >> 2);
    const int32_t lane_column = column + start + (lane & 3) * 2;
    if (p.c.data) sm90_add<T>(p, values, done / 4, lane_row, lane_column, batch);
    asm volatile("" ::: "memory");
    if (p.direct) {
      sm90_put<T>(p, values, lane_row, lane_column, batch);
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float* const v = values + j * 8;
      store_matrices(
          line + c % C::kBuffers * C::kChunkBytes + (((j * 2 + (lane >> 4)) ^ (lane & 7)) << 4),
          pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]),
          pack_pair<T>(v[6], v[7]));
    }
    if (c % kAtOnce == kAtOnce - 1) {
      fence_for_copy_engine();
      sync_threads_of(group, 128);
      if (thread == 0) {
#pragma unroll
        for (int d = c - kAtOnce + 1; d <= c; d++)
          tensor_store(map_y, buffers + d % C::kBuffers * C::kChunkBytes, column + first_column(d),
                       row + d / C::kPerRow * 64, batch);
        tensor_store_commit();
      }
    }
  }
}

// Ends a split of k: stores its accumulators in memory; the last split to do so adds up all of
// them, in order. No block waits for another, so it does not matter which of them run at the same
// time.
template <class C>
__device__ __forceinline__ void sm90_reduce_split(const Sm90Args& p,
                                                  const float (&sums)[C::MI][C::BN / 2],
                                                  const Sm90WorkTile& place, uint32_t flag,
                                                  uint32_t rank, int32_t row, int32_t column) {
  using T = typename C::T;
  const int thread = threadIdx.x & 127, consumer = (threadIdx.x >> 7) - 1, lane = threadIdx.x & 31;
  const int32_t slot = place.tile * C::kSharers + rank;
  const int64_t per_chunk = int64_t(2) * C::kFragments * 128,
                mine = (int64_t(consumer) * C::kFragments) * 128 + thread;
  float4* const tile = p.partial + slot * p.split * per_chunk + mine;
#pragma unroll
  for (int i = 0; i < C::kFragments; i++) {
    const float* const v = &sums[i / (C::BN / 8)][i % (C::BN / 8) * 4];
    __stcg(tile + place.part * per_chunk + i * 128, make_float4(v[0], v[1], v[2], v[3]));
  }
  __threadfence();
  sync_threads_of(3, 256);
  if (threadIdx.x == 128) {
    const bool last = atomicAdd(p.arrived + slot, 1) == p.split - 1;
    if (last) atomicExch(p.arrived + slot, 0);
    __threadfence();
    store_shared(flag, last);
  }
  sync_threads_of(3, 256);
  if (!load_shared(flag)) return;
#pragma unroll 4
  for (int i = 0; i < C::kFragments; i++) {
    float4 total = __ldcg(tile + i * 128);
    for (int q = 1; q < p.split; q++) {
      const float4 v = __ldcg(tile + q * per_chunk + i * 128);
      total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
    }
    const float values[4] = {total.x, total.y, total.z, total.w};
    const int32_t s = column + i % (C::BN / 8) * 8 + (lane & 3) * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int32_t r = row + i / (C::BN / 8) * 64 + (thread >> 5) * 16 + (lane >> 2) + half * 8;
      if (r >= p.m || s >= p.n) continue;
      float first = values[half * 2] * p.alpha, second = values[half * 2 + 1] * p.alpha;
      if (p.c.data) {
        const T* const c = static_cast<const T*>(p.c.data) + place.batch * p.c.batch_stride +
                           r * p.c.row_stride + s * p.c.column_stride;
        first += p.beta * to_compute<float>(*c);
        if (s + 1 < p.n) second += p.beta * to_compute<float>(c[p.c.column_stride]);
      }
      T* const y =
          static_cast<T*>(p.y.data) + place.batch * p.y.batch_stride + r * p.y.row_stride + s;
      if (!p.direct && s + 1 < p.n) {
        *reinterpret_cast<uint32_t*>(y) = pack_pair<T>(first, second);
      } else {
        y[0] = from_compute<T>(first);
        if (s + 1 < p.n) y[1] = from_compute<T>(second);
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void sm90_consume(const Sm90Args& p, const CUtensorMap* map_y,
                                             uint32_t shared, uint32_t full, uint32_t empty,
                                             uint32_t turn) {
  using T = typename C::T;
  const int consumer = (threadIdx.x >> 7) - 1, lane = threadIdx.x & 31;
  const uint32_t rank = C::kSharers > 1 ? cluster_rank() : 0;
  const uint32_t buffers = shared + C::kOutput + consumer * C::kBuffers * C::kChunkBytes;
  const uint64_t first_a =
      matrix_descriptor(shared + (C::kPingPong ? 0 : consumer * C::MI * kGroupBytes), C::kMajorA);
  const uint64_t first_b = matrix_descriptor(shared + C::kBytesA, C::kMajorB);
  constexpr int kStepA = C::kMajorA ? 128 : 2, kStepB = C::kMajorB ? 128 : 2,
                kStepStage = C::kStageBytes >> 4;
  const auto release = [&](int32_t stage) {
    if constexpr (C::kSharers > 1) {
      if (lane < C::kSharers) barrier_arrive_at(empty + stage * 8, lane);
    } else {
      if (lane == 0) barrier_arrive(empty + stage * 8);
    }
  };
  float sums[C::MI][C::BN / 2];
  int32_t stage = 0;
  uint32_t phase = 0, my_turn = 0;
  const auto skip = [&](int32_t blocks) {  // skips the steps of the other consumer's tile
    const int32_t at = stage + blocks;
    phase ^= at / C::kStages & 1;
    stage = at % C::kStages;
  };
  const Sm90Work<C> mine(p);
  int32_t at = mine.first;
  if constexpr (C::kPingPong) {  // no split
    if (consumer == 1) at += mine.stride, skip(p.k_blocks);
  }
  for (;; at += C::kAhead * mine.stride) {
    const int32_t work =
        p.counter ? load_for_warp(work_slot(shared + C::kQueue, at)) : warp_uniform(at);
    if (work >= p.work) break;
    const Sm90WorkTile place(p, work);
    const int32_t k_blocks = C::kPingPong ? p.k_blocks : place.k_blocks;
    // waits until the other consumer has seen its last stage: an earlier phase could be mistaken
    // for it
    if constexpr (C::kPingPong) {
      if (consumer == 1 || at >= 2 * mine.stride)
        barrier_wait(turn + consumer * 8, my_turn), my_turn ^= 1;
    }
    if constexpr (!C::kPingPong) {
      if (consumer == 1 && p.lag > 0) barrier_wait(turn + 8, my_turn), my_turn ^= 1;
    }
    int32_t last = 0;
    const int32_t signal = C::kPingPong || consumer == 1 || p.lag == 0 ? -1
                           : p.lag < k_blocks                          ? p.lag
                                                                       : k_blocks - 1;
#pragma unroll 1
    for (int32_t i = 0; i < k_blocks; i++) {
      barrier_wait(full + stage * 8, phase);
      const uint64_t a = first_a + static_cast<uint32_t>(stage * kStepStage),
                     b = first_b + static_cast<uint32_t>(stage * kStepStage);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; k++)
#pragma unroll
        for (int j = 0; j < C::MI; j++)
          wgmma<T, C::BN, C::kMajorA, C::kMajorB>(sums[j], a + k * kStepA + j * (kGroupBytes >> 4),
                                                  b + k * kStepB, k == 0 ? i : 1);
      wgmma_commit();
      if constexpr (!C::kPingPong) {
        if (i == signal && (threadIdx.x & 127) == 0) barrier_arrive(turn + 8);
      }
      wgmma_wait<1>();
      if (i > 0) release(last);
      last = stage;
      if (++stage == C::kStages) stage = 0, phase ^= 1;
    }
    if constexpr (C::kPingPong) {
      if ((threadIdx.x & 127) == 0) barrier_arrive(turn + (consumer ^ 1) * 8);
      skip(k_blocks);
    }
    wgmma_wait<0>();
    release(last);
    const int32_t row = (place.row * C::kClusterM + (C::kClusterM > 1 ? rank : 0)) * C::BM +
                        (C::kPingPong ? 0 : consumer * C::MI * 64);
    const int32_t column = (place.column * C::kClusterN + (C::kClusterN > 1 ? rank : 0)) * C::BN;
    if constexpr (!C::kPingPong) {
      if (p.split > 1) {
        sm90_reduce_split<C>(p, sums, place, shared + C::kFlag, rank, row, column);
        continue;
      }
    }
    sm90_write<C>(p, map_y, sums, buffers, row, column, place.batch);
  }
  if ((threadIdx.x & 127) == 0) tensor_store_wait_read<0>();
}

#endif

template <class C>
__global__ void __launch_bounds__(kSm90Threads, 1)
    matmul_sm90_kernel(const __grid_constant__ CUtensorMap map_a,
                       const __grid_constant__ CUtensorMap map_b,
                       const __grid_constant__ CUtensorMap map_y,
                       const __grid_constant__ Sm90Args p) {
#if SW_SM90A
  extern __shared__ __align__(1024) uint8_t sm90_shared[];
  const uint32_t shared = shared_address(sm90_shared), full = shared + C::kBarriers,
                 empty = full + C::kStages * 8, turn = empty + C::kStages * 8;
  if (threadIdx.x == 0) {
    tensor_map_prefetch(&map_a);
    tensor_map_prefetch(&map_b);
    if (!p.direct) tensor_map_prefetch(&map_y);
#pragma unroll
    for (int s = 0; s < C::kStages; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, C::kReleases);
    }
    barrier_init(turn, 1);
    barrier_init(turn + 8, 1);
#pragma unroll
    for (int i = 0; i < kWorkSlots; i++) barrier_init(handoff_barrier(shared + C::kQueue, i), 1);
    barrier_init_fence();
  }
  if constexpr (C::kSharers > 1)
    cluster_sync();
  else
    __syncthreads();

  pdl_launch_dependents();
  pdl_wait();
  if (p.counter) take_first_work<C>(p, shared + C::kQueue);

  if (threadIdx.x < 128) {
    registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) sm90_produce<C>(p, &map_a, &map_b, shared, full, empty);
    __syncwarp();
  } else {
    registers_up<C::kConsumerRegisters>();
    sm90_consume<C>(p, &map_y, shared, full, empty, turn);
    __syncwarp();
  }
  if constexpr (C::kSharers > 1) cluster_sync();  // the other block may still write or signal here
#endif
}

}  // namespace shardwise::cuda
