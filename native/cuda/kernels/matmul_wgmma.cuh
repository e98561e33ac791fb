// The kernel of matmul_wgmma.cu (its header tells the whole story) as a template, and its launcher.
#pragma once
#include "../primitives/wgmma.cuh"
#include "../primitives/mma.cuh"
#include "../tensor_map.h"
#include "matmul.h"

namespace shardwise::cuda {

// One block: a producer warpgroup (one thread of it works) and two consumer warpgroups.
constexpr int kWgmmaThreads = 384;

// Tile: BM x BN of y a block. ClusterM (ClusterN) = 2: two blocks, neighbours along m (n), share the tiles of b (a). Split = 2,
// 4: so many blocks of a cluster share one tile, each with a part of k. PingPong: each consumer has tiles of its own, in turn;
// else both halves of one. Stages of shared memory along k; Buffers of 64 rows for the output of each consumer.
template <class Element, bool MnMajorA, bool MnMajorB, int TileM, int TileN, int SharersM, int SharersN, int SplitK, bool InTurn,
          int NumStages, int NumBuffers>
struct WgmmaTile {
  using T = Element;
  static constexpr bool kMajorA = MnMajorA, kMajorB = MnMajorB, kPingPong = InTurn;
  static constexpr int BM = TileM, BN = TileN, kClusterM = SharersM, kClusterN = SharersN, kSplit = SplitK;
  static constexpr int kSharers = kClusterM * kClusterN, kCluster = kSharers * kSplit;
  static constexpr int kStages = NumStages, kBuffers = NumBuffers;
  static constexpr int MI = BM / (kPingPong ? 64 : 128);              // 64-row products of one consumer
  static constexpr int kColumns = BN / kSplit;                        // of y that one block writes
  static constexpr int kChunk = kColumns >= 64 ? 64 : 32;             // columns of one output buffer
  static constexpr int kPerRow = (kColumns + kChunk - 1) / kChunk;    // the last one may overlap the one before
  static constexpr int kChunks = MI * kPerRow;                        // of a consumer's part
  static constexpr int kBytesA = BM * 128;
  static constexpr int kBytesB = (kMajorB ? (BN + 63) / 64 * 64 : BN) * 128;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kChunkBytes = 64 * kChunk * 2;
  static constexpr int kOutput = kStages * kStageBytes;               // offset of the output buffers
  static constexpr int kBarriers = kOutput + 2 * kBuffers * kChunkBytes;
  static constexpr int kSharedBytes = kBarriers + (2 * kStages + 2) * 8;
  // 65536 in all; the producer makes do with 24 where the accumulators need every one.
  static constexpr bool kTight = MI * BN / 2 > 192;
  static constexpr int kProducerRegisters = kTight ? 24 : 40, kConsumerRegisters = kTight ? 240 : 232;
  static constexpr int kReleases = (kPingPong ? 4 : 8) * kSharers;    // warps that free a stage
  static_assert(kSharers <= 2, "clusters of more lose");
  static_assert(kSplit == 1 || (!kPingPong && MI == 1 && BM * BN * 4 <= kOutput), "partial sums lie in the stages");
  static_assert(kChunks % kBuffers == 0 && kSharedBytes <= 232448, "buffers are used in turn; what a block may have");
  static_assert(kStageBytes % 1024 == 0, "swizzled tiles start at multiples of 1024 bytes");
};

struct WgmmaArgs {
  int32_t m, n, k_blocks;                    // k in steps of 64
  int32_t tiles_m, tiles_n, tiles;           // of clusters
  int32_t group;                             // tile rows that are visited together
  int32_t lag;                               // steps along k that the second consumer of a tile keeps behind the first
  int32_t batched_a, batched_b;              // 0: all batches read the same
  float alpha, beta;
  MatrixView c, y;
  bool direct;                               // y is not for the copy engine
};

#if SW_SM90A

struct WgmmaPlace {
  int32_t row, column, batch;  // of the cluster's tile, in tiles
  __device__ __forceinline__ WgmmaPlace(const WgmmaArgs& p, int32_t tile) {
    const int32_t per_batch = p.tiles_m * p.tiles_n;
    batch = tile / per_batch;
    tile -= batch * per_batch;
    const int32_t per_group = p.group * p.tiles_n, first = tile / per_group * p.group, in_group = tile % per_group;
    const int32_t height = p.tiles_m - first < p.group ? p.tiles_m - first : p.group;
    row = first + in_group % height;
    column = in_group / height;
  }
};

// The producer: fills the stages for tile after tile.
template <class C>
__device__ __forceinline__ void wgmma_produce(const WgmmaArgs& p, const CUtensorMap* map_a, const CUtensorMap* map_b,
                                              uint32_t shared, uint32_t full, uint32_t empty, int32_t k_first, int32_t k_blocks) {
  const uint32_t cluster = C::kCluster > 1 ? cluster_rank() : 0, rank = cluster % C::kSharers;
  const uint16_t sharers = static_cast<uint16_t>(3u << (cluster - rank));
  int32_t stage = 0;
  uint32_t phase = 0;
  for (int32_t tile = blockIdx.x / C::kCluster; tile < p.tiles; tile += gridDim.x / C::kCluster) {
    const WgmmaPlace place(p, tile);
    const int32_t row = (place.row * C::kClusterM + (C::kClusterM > 1 ? rank : 0)) * C::BM;
    const int32_t column = (place.column * C::kClusterN + (C::kClusterN > 1 ? rank : 0)) * C::BN;
    const int32_t za = place.batch * p.batched_a, zb = place.batch * p.batched_b;
    for (int32_t i = 0; i < k_blocks; i++) {
      const int32_t k = (k_first + i) * 64;
      const uint32_t a = shared + stage * C::kStageBytes, b = a + C::kBytesA, ready = full + stage * 8;
      barrier_wait(empty + stage * 8, phase ^ 1);
      barrier_expect(ready, C::kStageBytes);
      if constexpr (C::kClusterN == 1) {
        if constexpr (!C::kMajorA) {
          tensor_load(a, map_a, ready, k, row, za);
        } else {
#pragma unroll
          for (int g = 0; g < C::BM / 64; g++) tensor_load(a + g * kGroupBytes, map_a, ready, row + g * 64, k, za);
        }
      } else if constexpr (!C::kMajorA) {
        const int32_t part = rank * (C::BM / 2);
        tensor_load_multicast(a + part * 128, map_a, ready, k, row + part, za, sharers);
      } else {
#pragma unroll
        for (int g = 0; g < C::BM / 64; g++)
          tensor_load_multicast(a + g * kGroupBytes + rank * 4096, map_a, ready, row + g * 64, k + rank * 32, za, sharers);
      }
      if constexpr (C::kClusterM == 1) {
        if constexpr (!C::kMajorB) {
          tensor_load(b, map_b, ready, k, column, zb);
        } else {
#pragma unroll
          for (int g = 0; g < (C::BN + 63) / 64; g++) tensor_load(b + g * kGroupBytes, map_b, ready, column + g * 64, k, zb);
        }
      } else if constexpr (!C::kMajorB) {
        const int32_t part = rank * (C::BN / 2);
        tensor_load_multicast(b + part * 128, map_b, ready, k, column + part, zb, sharers);
      } else {
#pragma unroll
        for (int g = 0; g < (C::BN + 63) / 64; g++)
          tensor_load_multicast(b + g * kGroupBytes + rank * 4096, map_b, ready, column + g * 64, k + rank * 32, zb, sharers);
      }
      if (++stage == C::kStages) stage = 0, phase ^= 1;
    }
  }
}

// Of one chunk of 64 rows: adds beta c, and writes it with ordinary stores if `direct`. `row` and `column` are those of the
// lane's first element. Chunk by chunk, so that few addresses live beside the accumulators.
template <class T, int Columns>
__device__ __forceinline__ void wgmma_add(const WgmmaArgs& p, float* sums, int done, int32_t row, int32_t column, int32_t batch) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (row + half * 8 >= p.m) return;
    const T* const c =
        static_cast<const T*>(p.c.data) + batch * p.c.batch_stride + (row + half * 8) * p.c.row_stride + column * p.c.column_stride;
#pragma unroll
    for (int j = 0; j < Columns; j++) {
      const int32_t step = j / 2 * 8 + j % 2;
      if (j >= done && column + step < p.n)
        sums[j / 2 * 4 + half * 2 + j % 2] += p.beta * to_compute<float>(c[step * p.c.column_stride]);
    }
  }
}
template <class T, int Columns>
__device__ __forceinline__ void wgmma_put(const WgmmaArgs& p, const float* sums, int32_t row, int32_t column, int32_t batch) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (row + half * 8 >= p.m) return;
    T* const y = static_cast<T*>(p.y.data) + batch * p.y.batch_stride + (row + half * 8) * p.y.row_stride + column;
#pragma unroll
    for (int j = 0; j < Columns; j++) {
      const int32_t step = j / 2 * 8 + j % 2;
      if (column + step < p.n) y[step] = from_compute<T>(sums[j / 2 * 4 + half * 2 + j % 2]);
    }
  }
}

// Writes a consumer's accumulators: `row` and `column` are those of its first element, `buffers` its output buffers.
template <class C>
__device__ __forceinline__ void wgmma_write(const WgmmaArgs& p, const CUtensorMap* map_y, float (&sums)[C::MI][C::kColumns / 2],
                                            uint32_t buffers, int32_t row, int32_t column, int32_t batch) {
  using T = typename C::T;
  const int thread = threadIdx.x & 127, warp = thread >> 5, lane = thread & 31, group = threadIdx.x >> 7;
  // Chunk by chunk (all at once if each has a buffer): wait until the buffer has been stored, fill it, hand it to the engine.
  constexpr int kAtOnce = C::kBuffers == C::kChunks ? C::kChunks : 1, kPending = C::kBuffers / kAtOnce - 1;
  constexpr int kPitch = C::kChunk * 2, kOfLane = C::kChunk / 4;
  const int in_chunk = warp * 16 + (lane & 15), swizzle = C::kChunk == 64 ? in_chunk & 7 : in_chunk >> 1 & 3;
  const uint32_t line = buffers + in_chunk * kPitch;
  const auto first_column = [](int c) {
    const int start = c % C::kPerRow * C::kChunk;
    return start + C::kChunk <= C::kColumns ? start : C::kColumns - C::kChunk;
  };
#pragma unroll
  for (int c = 0; c < C::kChunks; c++) {
    if (c % kAtOnce == 0) {
      if (thread == 0) tensor_store_wait_read<kPending>();
      sync_threads_of(group, 128);
    }
    const int start = first_column(c);
    const int done = c % C::kPerRow * C::kChunk - start;  // columns that belong to the chunk before, too
    float* const values = &sums[c / C::kPerRow][start / 2];
    if (p.alpha != 1.0f) {
#pragma unroll
      for (int j = 0; j < C::kChunk / 2; j++)
        if (j >= done / 2) values[j] *= p.alpha;
    }
    const int32_t lane_row = row + c / C::kPerRow * 64 + warp * 16 + (lane >> 2);
    const int32_t lane_column = column + start + (lane & 3) * 2;
    if (p.c.data) wgmma_add<T, kOfLane>(p, values, done / 4, lane_row, lane_column, batch);
    asm volatile("" ::: "memory");
    if (p.direct) {
      wgmma_put<T, kOfLane>(p, values, lane_row, lane_column, batch);
      continue;
    }
#pragma unroll
    for (int j = 0; j < C::kChunk / 16; j++) {
      const float* const v = values + j * 8;
      store_matrices(line + c % C::kBuffers * C::kChunkBytes + (((j * 2 + (lane >> 4)) ^ swizzle) << 4), pack_pair<T>(v[0], v[1]),
                     pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]), pack_pair<T>(v[6], v[7]));
    }
    if (c % kAtOnce == kAtOnce - 1) {
      fence_for_copy_engine();
      sync_threads_of(group, 128);
      if (thread == 0) {
#pragma unroll
        for (int d = c - kAtOnce + 1; d <= c; d++)
          tensor_store(map_y, buffers + d % C::kBuffers * C::kChunkBytes, column + first_column(d), row + d / C::kPerRow * 64,
                       batch);
        tensor_store_commit();
      }
    }
  }
}

// Adds the partial sums of the blocks of a cluster, in the order of their ranks, and keeps this block's columns.
template <class C>
__device__ __forceinline__ void wgmma_reduce(float (&sums)[C::BN / 2], float (&out)[C::kColumns / 2], uint32_t shared,
                                             uint32_t rank, uint32_t part) {
  const int thread = threadIdx.x - 128;
  constexpr int kOwn = C::kColumns / 8;
  // Nobody of this block reads the stages any more. (What a sharer sends has arrived: this block has read all of it.)
  sync_threads_of(3, 256);
#pragma unroll
  for (int i = 0; i < C::BN / 8; i++)
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared + (i * 256 + thread) * 16), "f"(sums[4 * i]),
                 "f"(sums[4 * i + 1]), "f"(sums[4 * i + 2]), "f"(sums[4 * i + 3])
                 : "memory");
  cluster_sync();
  const uint32_t from = shared + (part * kOwn * 256 + thread) * 16;
#pragma unroll
  for (int i = 0; i < kOwn; i++) {
    float4 total = load_from_cluster(from + i * 4096, rank);
#pragma unroll
    for (int r = 1; r < C::kSplit; r++) {
      const float4 v = load_from_cluster(from + i * 4096, r * C::kSharers + rank);
      total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
    }
    out[4 * i] = total.x, out[4 * i + 1] = total.y, out[4 * i + 2] = total.z, out[4 * i + 3] = total.w;
  }
  cluster_sync();  // others may still be reading here
}

template <class C>
__device__ __forceinline__ void wgmma_consume(const WgmmaArgs& p, const CUtensorMap* map_y, uint32_t shared, uint32_t full,
                                              uint32_t empty, uint32_t turn, int32_t k_blocks) {
  using T = typename C::T;
  const int consumer = (threadIdx.x >> 7) - 1, lane = threadIdx.x & 31;
  const uint32_t cluster = C::kCluster > 1 ? cluster_rank() : 0, rank = cluster % C::kSharers, part = cluster / C::kSharers;
  const uint32_t buffers = shared + C::kOutput + consumer * C::kBuffers * C::kChunkBytes;
  const uint64_t first_a = matrix_descriptor(shared + (C::kPingPong ? 0 : consumer * C::MI * kGroupBytes), C::kMajorA);
  const uint64_t first_b = matrix_descriptor(shared + C::kBytesA, C::kMajorB);
  constexpr int kStepA = C::kMajorA ? 128 : 2, kStepB = C::kMajorB ? 128 : 2, kStepStage = C::kStageBytes >> 4;
  const auto release = [&](int32_t stage) {
    if constexpr (C::kSharers > 1) {
      if (lane < C::kSharers) barrier_arrive_at(empty + stage * 8, cluster - rank + lane);
    } else {
      if (lane == 0) barrier_arrive(empty + stage * 8);
    }
  };
  float sums[C::MI][C::BN / 2];
  int32_t stage = 0;
  uint32_t phase = 0, my_turn = 0;
  const auto skip = [&](int32_t blocks) {  // those of the other consumer's tile
    const int32_t at = stage + blocks;
    phase ^= at / C::kStages & 1;
    stage = at % C::kStages;
  };
  const int32_t stride = gridDim.x / C::kCluster;
  int32_t tile = blockIdx.x / C::kCluster;
  if constexpr (C::kPingPong) {
    if (consumer == 1) tile += stride, skip(k_blocks);
  }
  for (; tile < p.tiles; tile += C::kPingPong ? 2 * stride : stride) {
    const WgmmaPlace place(p, tile);
    if constexpr (C::kPingPong) {  // until the other has seen its last stage arrive: before, a phase could be mistaken
      if (consumer == 1 || tile >= 2 * stride) barrier_wait(turn + consumer * 8, my_turn), my_turn ^= 1;
    }
    if constexpr (!C::kPingPong) {
      if (consumer == 1 && p.lag > 0) barrier_wait(turn + 8, my_turn), my_turn ^= 1;
    }
    int32_t last = 0;
    const int32_t signal = C::kPingPong || consumer == 1 || p.lag == 0 ? -1 : p.lag < k_blocks ? p.lag : k_blocks - 1;
#pragma unroll 1
    for (int32_t i = 0; i < k_blocks; i++) {
      barrier_wait(full + stage * 8, phase);
      const uint64_t a = first_a + static_cast<uint32_t>(stage * kStepStage), b = first_b + static_cast<uint32_t>(stage * kStepStage);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; k++)
#pragma unroll
        for (int j = 0; j < C::MI; j++)
          wgmma<T, C::BN, C::kMajorA, C::kMajorB>(sums[j], a + k * kStepA + j * (kGroupBytes >> 4), b + k * kStepB,
                                                  k == 0 ? i : 1);
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
    if constexpr (C::kSplit > 1) {
      float own[1][C::kColumns / 2];
      wgmma_reduce<C>(sums[0], own[0], shared, rank, part);
      wgmma_write<C>(p, map_y, own, buffers, row, column + part * C::kColumns, place.batch);
    } else {
      wgmma_write<C>(p, map_y, sums, buffers, row, column, place.batch);
    }
  }
  if ((threadIdx.x & 127) == 0) tensor_store_wait_read<0>();
}

#endif

template <class C>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                 const __grid_constant__ CUtensorMap map_y, const __grid_constant__ WgmmaArgs p) {
#if SW_SM90A
  extern __shared__ __align__(1024) uint8_t wgmma_shared[];
  const uint32_t shared = shared_address(wgmma_shared), full = shared + C::kBarriers, empty = full + C::kStages * 8,
                 turn = empty + C::kStages * 8;
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
    barrier_init_fence();
  }
  if constexpr (C::kCluster > 1)
    cluster_sync();
  else
    __syncthreads();

  let_next_kernel_start();
  wait_for_kernels_before();

  int32_t k_first = 0, k_blocks = p.k_blocks;
  if constexpr (C::kSplit > 1) {
    const int32_t part = cluster_rank() / C::kSharers;
    k_first = static_cast<int32_t>(int64_t(part) * p.k_blocks / C::kSplit);
    k_blocks = static_cast<int32_t>(int64_t(part + 1) * p.k_blocks / C::kSplit) - k_first;
  }
  if (threadIdx.x < 128) {
    registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) wgmma_produce<C>(p, &map_a, &map_b, shared, full, empty, k_first, k_blocks);
    __syncwarp();
    if constexpr (C::kSplit > 1) {
      cluster_sync();
      cluster_sync();
    }
  } else {
    registers_up<C::kConsumerRegisters>();
    wgmma_consume<C>(p, &map_y, shared, full, empty, turn, k_blocks);
    __syncwarp();
  }
  if constexpr (C::kSharers > 1) cluster_sync();  // the other block may still write or signal here
#endif
}

// False if the copy engine cannot take an operand. a: [m, k], b: [k, n] as the config says, y with contiguous rows or `direct`.
template <class C>
bool wgmma_launch(const MatmulProblem& p, int32_t group, int32_t lag, Stream& stream) {
  const auto shape = [&](const MatrixView& v, int64_t width, int64_t height, bool across) {
    TensorMapShape s;
    s.data = v.data;
    s.width = width;
    s.height = height;
    s.row_stride = across ? v.column_stride : v.row_stride;
    s.depth = p.batch > 1 && v.batch_stride != 0 ? p.batch : 1;
    s.depth_stride = v.batch_stride;
    return s;
  };
  constexpr bool kBf16 = std::is_same<typename C::T, bfloat16_t>::value;
  const TensorMapShape a = C::kMajorA ? shape(p.a, p.m, p.k, true) : shape(p.a, p.k, p.m, false);
  const TensorMapShape b = C::kMajorB ? shape(p.b, p.n, p.k, false) : shape(p.b, p.k, p.n, true);
  const TensorMapShape y = shape(p.y, p.n, p.m, false);
  const bool direct = !tensor_map_fits(y) || (p.batch > 1 && y.depth == 1);
  if (ceil_div(p.k, 64) < C::kSplit) return false;
  CUtensorMap map_a, map_b, map_y;
  const int height_a = C::kMajorA ? (C::kClusterN > 1 ? 32 : 64) : C::BM / C::kClusterN;
  const int height_b = C::kMajorB ? (C::kClusterM > 1 ? 32 : 64) : C::BN / C::kClusterM;
  if (!tensor_map_fits(a) || !tensor_map_fits(b) || !make_tensor_map(a, 64, height_a, kBf16, &map_a) ||
      !make_tensor_map(b, 64, height_b, kBf16, &map_b))
    return false;
  if (direct)
    map_y = map_a;
  else if (!make_tensor_map(y, C::kChunk, 64, kBf16, &map_y))
    return false;

  WgmmaArgs args = {};
  args.m = static_cast<int32_t>(p.m);
  args.n = static_cast<int32_t>(p.n);
  args.k_blocks = static_cast<int32_t>(ceil_div(p.k, 64));
  args.tiles_m = static_cast<int32_t>(ceil_div(p.m, C::BM * C::kClusterM));
  args.tiles_n = static_cast<int32_t>(ceil_div(p.n, C::BN * C::kClusterN));
  args.tiles = static_cast<int32_t>(p.batch * args.tiles_m * args.tiles_n);
  args.group = group < args.tiles_m ? group : args.tiles_m;
  args.lag = lag;
  args.batched_a = a.depth > 1;
  args.batched_b = b.depth > 1;
  args.alpha = static_cast<float>(p.alpha);
  args.beta = static_cast<float>(p.beta);
  args.c = p.c;
  args.y = p.y;
  args.direct = direct;
  const int32_t clusters = stream.facts->num_sms / C::kCluster;
  const int32_t wanted = C::kSplit > 1 || args.tiles < clusters ? args.tiles : clusters;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(wanted * C::kCluster));
  config.blockDim = dim3(kWgmmaThreads);
  config.dynamicSmemBytes = C::kSharedBytes;
  config.stream = stream.handle;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = C::kCluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = C::kCluster > 1 ? 2 : 1;
  allow_shared(&wgmma_kernel<C>, C::kSharedBytes);
  cudaLaunchKernelEx(&config, &wgmma_kernel<C>, map_a, map_b, map_y, args);
  return true;
}

}  // namespace shardwise::cuda
