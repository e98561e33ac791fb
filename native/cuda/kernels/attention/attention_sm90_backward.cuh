// The kernel of attention_sm90_backward.cu as a template; that file has the description.
#pragma once
#include "attention_sm90.cuh"

namespace shardwise::cuda {

struct BackwardArgs {
  AttentionOrder order;
  int32_t heads, kv_heads, queries, keys, stat_blocks;
  bool causal, want1, want2;
  float scale, scale_log2;
  const float* row_stats;
  ScoreMods mods;
};

// ByKeys: a block owns rows of k and v, tiles of q and g pass by; else it owns rows of q and g,
// tiles of k and v pass by. Modified: there is a mask, dropout or both.
template <class Element, int DepthOfTile, bool OwnKeys, int PassingRows, int NumStages,
          bool Modified>
struct BackwardTile {
  using T = Element;
  static constexpr bool kModified = Modified;
  static constexpr bool kByKeys = OwnKeys;
  static constexpr int kDepth = DepthOfTile, kPassing = PassingRows, kStages = NumStages,
                       kBoxes = kDepth / 64;
  static constexpr int kConsumers = 2, kOwned = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
  static constexpr int kOwnedBox = kOwned * 128, kPassingBox = kPassing * 128;
  static constexpr int kOwnedBytes = kBoxes * kOwnedBox, kPassingBytes = kBoxes * kPassingBox;
  static constexpr int kStatBytes = kByKeys ? kStatBlock * 4 : 0;
  static constexpr bool kInRegisters =
      // Holds the owned rows in registers: shared-memory bandwidth is the bottleneck.
      !kByKeys || kDepth == 64;
  // Offsets in shared memory: both owned tiles, then the results; a ring of both passing tiles; one
  // of statistics; barriers.
  static constexpr int kRing = 2 * kOwnedBytes, kStageBytes = 2 * kPassingBytes,
                       kStats = kRing + kStages * kStageBytes;
  static constexpr int kBarriers = kStats + kStages * kStatBytes;
  static constexpr int kSharedBytes = kBarriers + (2 * kStages + 1) * 8;
  static_assert(!kByKeys || kPassing == kStatRows, "a stage takes one block of statistics");
  static_assert(kSharedBytes <= 232448, "what a block may have");
};

#if SW_SM90A

// Loads both tiles of a pair: q and g, or k and v.
template <int Boxes>
__device__ __forceinline__ void load_pair(uint32_t to, uint32_t box_bytes, const CUtensorMap* first,
                                          const CUtensorMap* second, uint32_t barrier, int32_t row,
                                          int32_t head, int32_t batch) {
  load_tile<Boxes>(to, box_bytes, first, barrier, row, head, batch);
  load_tile<Boxes>(to + Boxes * box_bytes, box_bytes, second, barrier, row, head, batch);
}

template <class C>
__device__ __forceinline__ void backward_produce(const BackwardArgs& p, const BackwardWork& place,
                                                 const CUtensorMap* own1, const CUtensorMap* own2,
                                                 const CUtensorMap* pass1, const CUtensorMap* pass2,
                                                 uint32_t shared, uint32_t own_full, uint32_t full,
                                                 uint32_t empty) {
  barrier_expect(own_full, 2 * C::kOwnedBytes);
  load_pair<C::kBoxes>(shared, C::kOwnedBox, own1, own2, own_full, place.row0, place.own_head,
                       place.batch);
  RingPlace<C::kStages> ring;
  int32_t head = C::kByKeys ? place.first_head : place.kv_head, step = 0;
  for (int32_t round = 0; round < place.rounds; round++, ring.advance()) {
    const uint32_t ready = full + ring.stage * 8;
    const int32_t row = (place.first_step + step) * C::kPassing;
    barrier_wait(empty + ring.stage * 8, ring.phase ^ 1);
    barrier_expect(ready, C::kStageBytes + C::kStatBytes);
    load_pair<C::kBoxes>(shared + C::kRing + ring.stage * C::kStageBytes, C::kPassingBox, pass1,
                         pass2, ready, row, head, place.batch);
    if constexpr (C::kByKeys) {
      const int64_t block = int64_t(place.batch * p.heads + head) * p.stat_blocks + row / kStatRows;
      bulk_load(shared + C::kStats + ring.stage * C::kStatBytes, p.row_stats + block * kStatBlock,
                C::kStatBytes, ready);
    }
    if (++step == place.steps) step = 0, head++;
  }
}

template <class C>
__device__ __forceinline__ void backward_consume(const BackwardArgs& p, const BackwardWork& place,
                                                 const CUtensorMap* map1, const CUtensorMap* map2,
                                                 uint32_t shared, uint32_t own_full, uint32_t full,
                                                 uint32_t empty) {
  using T = typename C::T;
  constexpr int kPassing = C::kPassing, kDepth = C::kDepth;
  const int consumer = warp_uniform(threadIdx.x >> 7) - 1, thread = threadIdx.x & 127,
            lane = thread & 31;
  const int32_t first_row = place.row0 + consumer * 64,
                row_low = first_row + (thread >> 5) * 16 + (lane >> 2);
  const int32_t pair = (lane & 3) * 2, own_rows = C::kByKeys ? p.keys : p.queries;
  // Causal, by queries: the first warpgroup sees fewer keys than the second. By keys it sees more
  // queries, and those of the second are masked.
  const int32_t seen = (first_row + 63) / kPassing + 1;
  const int32_t rounds = !C::kByKeys && p.causal && seen < place.rounds ? seen : place.rounds;
  const uint32_t rows1 = shared + consumer * 64 * 128, rows2 = rows1 + C::kOwnedBytes,
                 ring_start = shared + C::kRing;
  const uint64_t own1 = matrix_descriptor(rows1, false), own2 = matrix_descriptor(rows2, false),
                 pass1 = matrix_descriptor(ring_start, false),
                 pass2 = matrix_descriptor(ring_start + C::kPassingBytes, false),
                 pass1_across = matrix_descriptor(ring_start, true, C::kPassingBox),
                 pass2_across =
                     matrix_descriptor(ring_start + C::kPassingBytes, true, C::kPassingBox);

  StatsFragment<C::kByKeys> lse, delta;
  if constexpr (!C::kByKeys) {
#pragma unroll
    // the statistics exist up to a multiple of the owned rows
    for (int half = 0; half < 2; half++) {
      const int32_t row = row_low + half * 8, head_index = place.batch * p.heads + place.own_head;
      const float* const at =
          p.row_stats + int64_t(head_index) * p.stat_blocks * kStatBlock + stat_place(row);
      lse.row[half] = at[0];
      delta.row[half] = at[kStatRows];
    }
  }

  // sums: gq or gk; gv
  float s[kPassing / 2], d[kPassing / 2], sums1[kDepth / 2], sums2[C::kByKeys ? kDepth / 2 : 2];
  // of dS and P
  uint32_t fragments1[kPassing / 16][4], fragments2[kPassing / 16][4];
  // of the owned rows
  uint32_t held1[C::kInRegisters ? kDepth / 16 : 1][4], held2[C::kInRegisters ? kDepth / 16 : 1][4];
#pragma unroll
  for (int i = 0; i < kDepth / 2; i++) {
    sums1[i] = 0.0f;
    if constexpr (C::kByKeys) sums2[i] = 0.0f;
  }
  const auto start_scores = [&](uint32_t at) {
    if constexpr (C::kInRegisters)
      start_rows<T, kPassing, kDepth, C::kPassingBox>(s, held1, pass1 + at);
    else
      start_rows<T, kPassing, kDepth, C::kOwnedBox, C::kPassingBox>(s, own1, pass1 + at);
    wgmma_commit();
  };
  const auto start_dp = [&](uint32_t at) {
    if constexpr (C::kInRegisters)
      start_rows<T, kPassing, kDepth, C::kPassingBox>(d, held2, pass2 + at);
    else
      start_rows<T, kPassing, kDepth, C::kOwnedBox, C::kPassingBox>(d, own2, pass2 + at);
    wgmma_commit();
  };

  Mods<T, kPassing, C::kByKeys, C::kModified> mods;
  int32_t step = 0, head = C::kByKeys ? place.first_head : place.own_head, column0;
  // Loads mask and dropout of the next round, while its scores are computed.
  const auto load_mods = [&] {
    column0 = (place.first_step + step) * kPassing;
    mods.load(p.mods, place.batch, head, p.heads, row_low, column0 + pair);
    if (++step == place.steps) step = 0, head += C::kByKeys;
  };
  // s becomes P; returns the address of the columns' deltas.
  const auto compute_scores = [&](int32_t stage) {
    const uint32_t columns = shared + C::kStats + stage * C::kStatBytes + pair * 4;
    if constexpr (C::kModified) mods.change(s, p.mods, p.scale_log2);
    if constexpr (C::kByKeys)
      mask_queries(s, p.causal, first_row + 63, row_low, column0 + pair, pair);
    else
      mask_keys(s, p.causal, p.keys, first_row, row_low, column0 + pair, pair);
    softmax_rescale<C::kModified>(s, p.scale_log2, lse, columns);
    return columns + kStatRows * 4;
  };
  const float keep_scale = C::kModified ? static_cast<float>(p.mods.dropout.keep_scale) : 1.0f;
  const auto accumulate = [&](uint32_t deltas) {
    scores_gradient(d, s, delta, deltas, mods, keep_scale);
  };
  // P of the kept weights, for gv.
  const auto pack_weights = [&] {
    if constexpr (C::kModified)
      mods.pack_kept(fragments2, s);
    else
      pack_fragments<T, kPassing>(fragments2, s);
  };
  const auto start_sums1 = [&](uint32_t at) {
    start_columns<T, kPassing, kDepth>(sums1, fragments1, pass1_across + at);
    wgmma_commit();
  };
  const auto start_sums2 = [&](uint32_t at) {
    if constexpr (C::kByKeys)
      start_columns<T, kPassing, kDepth>(sums2, fragments2, pass2_across + at);
    wgmma_commit();
  };
  const auto fence_sums = [&] {
    wgmma_fence_operand(sums1);
    wgmma_fence_operand(fragments1);
    if constexpr (C::kByKeys) {
      wgmma_fence_operand(sums2);
      wgmma_fence_operand(fragments2);
    }
  };
  const auto place_of_stage = [](int32_t stage) {
    return static_cast<uint32_t>(stage * (C::kStageBytes / 16));
  };

  const auto release = [&](int32_t stage) {
    if constexpr (C::kByKeys) __syncwarp();  // all lanes have read their columns' statistics
    if (lane == 0) barrier_arrive(empty + stage * 8);
  };

  barrier_wait(own_full, 0);
  if constexpr (C::kInRegisters) {
    load_fragments<kDepth, C::kOwnedBox>(held1, rows1);
    load_fragments<kDepth, C::kOwnedBox>(held2, rows2);
  }
  RingPlace<C::kStages> ring;
  if constexpr (!C::kInRegisters) {
    // The sums and the products in flight fill the registers, so this pass does not overlap rounds;
    // the other warpgroup keeps the tensor cores busy.
#pragma unroll 1
    for (int32_t round = 0; round < rounds; round++, ring.advance()) {
      const uint32_t at = place_of_stage(ring.stage);
      barrier_wait(full + ring.stage * 8, ring.phase);
      wgmma_fence();
      start_scores(at);
      start_dp(at);
      load_mods();
      wgmma_wait<1>();
      wgmma_fence_operand(s);
      const uint32_t deltas = compute_scores(ring.stage);
      pack_weights();
      wgmma_fence();
      start_sums2(at);
      wgmma_wait<1>();
      wgmma_fence_operand(d);
      accumulate(deltas);
      pack_fragments<T, kPassing>(fragments1, d);
      wgmma_fence();
      start_sums1(at);
      wgmma_wait<0>();
      fence_sums();
      release(ring.stage);
    }
  } else if (rounds > 0) {
    // The sums of a round are issued with the scores of the next one, so that the tensor cores work
    // during the exponentials.
    RingPlace<C::kStages> before;
    barrier_wait(full, 0);
    wgmma_fence();
    start_scores(0);
    start_dp(0);
    load_mods();
    wgmma_wait<0>();
    wgmma_fence_operand(s);
    wgmma_fence_operand(d);
    accumulate(compute_scores(0));
    pack_fragments<T, kPassing>(fragments1, d);
    pack_weights();
#pragma unroll 1
    for (int32_t round = 1; round < rounds; round++) {
      ring.advance();
      barrier_wait(full + ring.stage * 8, ring.phase);
      wgmma_fence();
      start_scores(place_of_stage(ring.stage));
      start_dp(place_of_stage(ring.stage));
      start_sums2(place_of_stage(before.stage));
      start_sums1(place_of_stage(before.stage));
      load_mods();
      wgmma_wait<3>();
      wgmma_fence_operand(s);
      const uint32_t deltas = compute_scores(ring.stage);
      wgmma_wait<2>();
      wgmma_fence_operand(d);
      accumulate(deltas);
      wgmma_wait<0>();
      fence_sums();
      release(before.stage);
      before = ring;
      pack_fragments<T, kPassing>(fragments1, d);
      pack_weights();
    }
    wgmma_fence();
    start_sums2(place_of_stage(before.stage));
    start_sums1(place_of_stage(before.stage));
    wgmma_wait<0>();
    fence_sums();
  }

  if (first_row >= own_rows) return;
  if (p.want1)
    store_tile<T, kDepth>(map1, rows1, C::kOwnedBox, sums1, p.scale, p.scale, 1 + consumer,
                          first_row, place.own_head, place.batch);
  if constexpr (C::kByKeys)
    if (p.want2)
      store_tile<T, kDepth>(map2, rows2, C::kOwnedBox, sums2, keep_scale, keep_scale, 1 + consumer,
                            first_row, place.own_head, place.batch);
  finish_stores();
}

#endif

// own1, own2: k and v, or q and g; pass1, pass2: the other pair. result1: gk or gq, result2: gv.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    backward_kernel(const __grid_constant__ CUtensorMap own1,
                    const __grid_constant__ CUtensorMap own2,
                    const __grid_constant__ CUtensorMap pass1,
                    const __grid_constant__ CUtensorMap pass2,
                    const __grid_constant__ CUtensorMap result1,
                    const __grid_constant__ CUtensorMap result2,
                    const __grid_constant__ BackwardArgs p) {
#if SW_SM90A
  extern __shared__ __align__(1024) uint8_t attention_shared[];
  const uint32_t shared = shared_address(attention_shared), full = shared + C::kBarriers,
                 empty = full + C::kStages * 8, own_full = empty + C::kStages * 8;
  if (threadIdx.x == 0) {
    tensor_map_prefetch(&own1);
    tensor_map_prefetch(&own2);
    tensor_map_prefetch(&pass1);
    tensor_map_prefetch(&pass2);
#pragma unroll
    for (int s = 0; s < C::kStages; s++) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, 4 * C::kConsumers);
    }
    barrier_init(own_full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  int32_t tile, owner;
  p.order.place(blockIdx.x, &tile, &owner);
  const BackwardWork place = BackwardWork::of<C>(p, tile, owner);
  if (threadIdx.x < 128) {
    registers_down<24>();
    if (threadIdx.x == 0)
      backward_produce<C>(p, place, &own1, &own2, &pass1, &pass2, shared, own_full, full, empty);
  } else {
    registers_up<240>();
    backward_consume<C>(p, place, &result1, &result2, shared, own_full, full, empty);
  }
#endif
}

}  // namespace shardwise::cuda
