// The kernel of attention_wgmma_backward.cu (its header tells the whole story) as a template.
#pragma once
#include "attention_wgmma.cuh"

namespace shardwise::cuda {

// Numbers of queries: blocks of 64 queries, of each first lse in base 2, then delta. A query that does not exist or sees nothing
// has an lse of +inf, which makes its P zero.
constexpr int kNumberRows = 64, kNumberBlock = 2 * kNumberRows;

__device__ __forceinline__ int64_t number_place(int64_t query) {
  return query / kNumberRows * kNumberBlock + query % kNumberRows;
}

struct BackwardArgs {
  AttentionOrder order;
  int32_t heads, kv_heads, group_size, queries, keys, number_blocks;
  bool causal, want1, want2;
  float scale, scale_log2;
  const float* numbers;
};

// ByKeys: a block owns rows of k and v, tiles of q and g pass by; else it owns rows of q and g, tiles of k and v pass by.
template <class Element, int DepthOfTile, bool OwnKeys, int PassingRows, int NumStages>
struct BackwardTile {
  using T = Element;
  static constexpr bool kByKeys = OwnKeys;
  static constexpr int kDepth = DepthOfTile, kPassing = PassingRows, kStages = NumStages, kBoxes = kDepth / 64;
  static constexpr int kConsumers = 2, kOwned = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
  static constexpr int kOwnedBox = kOwned * 128, kPassingBox = kPassing * 128;
  static constexpr int kOwnedBytes = kBoxes * kOwnedBox, kPassingBytes = kBoxes * kPassingBox;
  static constexpr int kNumberBytes = kByKeys ? kNumberBlock * 4 : 0;
  static constexpr bool kHold =
      !kByKeys || kDepth == 64;  // the owned rows in registers: shared memory is the narrower of the two
  // In shared memory: both owned tiles, then the results; a ring of both passing tiles, one of numbers; barriers.
  static constexpr int kRing = 2 * kOwnedBytes, kStageBytes = 2 * kPassingBytes, kNumbers = kRing + kStages * kStageBytes;
  static constexpr int kBarriers = kNumbers + kStages * kNumberBytes;
  static constexpr int kSharedBytes = kBarriers + (2 * kStages + 1) * 8;
  static_assert(!kByKeys || kPassing == kNumberRows, "a stage takes one block of numbers");
  static_assert(kSharedBytes <= 232448, "what a block may have");
};

#if SW_SM90A

// What a block owns, and the rounds in which tiles pass by: over the steps of one head after the other.
struct BackwardPlace {
  int32_t row0, batch, kv_head, first_head, owner_head, first_step, steps, rounds;
  template <class C>
  __device__ __forceinline__ static BackwardPlace of(const BackwardArgs& p) {
    BackwardPlace place;
    int32_t tile, owner;
    p.order.place(blockIdx.x, &tile, &owner);
    const int32_t own_heads = C::kByKeys ? p.kv_heads : p.heads;
    place.batch = owner / own_heads;
    place.owner_head = owner % own_heads;
    place.kv_head = C::kByKeys ? place.owner_head : place.owner_head / p.group_size;
    place.first_head = C::kByKeys ? place.owner_head * p.group_size : place.owner_head;
    place.row0 = tile * C::kOwned;
    const int32_t rows = C::kByKeys ? p.queries : p.keys, end = place.row0 + C::kOwned;
    const int32_t last_seen = end < p.queries ? end : p.queries;  // by queries
    const int32_t passing = !C::kByKeys && p.causal && last_seen < rows ? last_seen : rows;
    place.first_step = C::kByKeys && p.causal ? place.row0 / C::kPassing : 0;
    place.steps = (passing + C::kPassing - 1) / C::kPassing - place.first_step;
    if (place.steps < 0) place.steps = 0;
    place.rounds = place.steps * (C::kByKeys ? p.group_size : 1);
    return place;
  }
};

// Both tiles of a pair: q and g, or k and v.
template <int Boxes>
__device__ __forceinline__ void load_pair(uint32_t to, uint32_t box_bytes, const CUtensorMap* first, const CUtensorMap* second,
                                          uint32_t barrier, int32_t row, int32_t head, int32_t batch) {
  load_tile<Boxes>(to, box_bytes, first, barrier, row, head, batch);
  load_tile<Boxes>(to + Boxes * box_bytes, box_bytes, second, barrier, row, head, batch);
}

template <class C>
__device__ __forceinline__ void backward_produce(const BackwardArgs& p, const BackwardPlace& place, const CUtensorMap* own1,
                                                 const CUtensorMap* own2, const CUtensorMap* pass1, const CUtensorMap* pass2,
                                                 uint32_t shared, uint32_t own_full, uint32_t full, uint32_t empty) {
  barrier_expect(own_full, 2 * C::kOwnedBytes);
  load_pair<C::kBoxes>(shared, C::kOwnedBox, own1, own2, own_full, place.row0, place.owner_head, place.batch);
  RingPlace<C::kStages> ring;
  int32_t head = C::kByKeys ? place.first_head : place.kv_head, step = 0;
  for (int32_t round = 0; round < place.rounds; round++, ring.advance()) {
    const uint32_t ready = full + ring.stage * 8;
    const int32_t row = (place.first_step + step) * C::kPassing;
    barrier_wait(empty + ring.stage * 8, ring.phase ^ 1);
    barrier_expect(ready, C::kStageBytes + C::kNumberBytes);
    load_pair<C::kBoxes>(shared + C::kRing + ring.stage * C::kStageBytes, C::kPassingBox, pass1, pass2, ready, row, head,
                         place.batch);
    if constexpr (C::kByKeys) {
      const int64_t block = int64_t(place.batch * p.heads + head) * p.number_blocks + row / kNumberRows;
      bulk_load(shared + C::kNumbers + ring.stage * C::kNumberBytes, p.numbers + block * kNumberBlock, C::kNumberBytes, ready);
    }
    if (++step == place.steps) step = 0, head++;
  }
}

__device__ __forceinline__ float2 load_two(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

// Numbers of this thread's accumulators: by keys those of its columns, in shared memory, else those of its two rows.
template <class C>
struct BackwardNumbers {
  float row[2] = {0, 0};

  // Those of accumulators 4 j to 4 j + 3.
  __device__ __forceinline__ void of_four(float (&out)[4], uint32_t columns, int j) const {
    if constexpr (C::kByKeys) {
      const float2 pair = load_two(columns + j * 32);
      out[0] = out[2] = pair.x;
      out[1] = out[3] = pair.y;
    } else {
      out[0] = out[1] = row[0];
      out[2] = out[3] = row[1];
    }
  }
};

// s becomes P = exp2(scale s - lse).
template <class C>
__device__ __forceinline__ void take_exponentials(float (&s)[C::kPassing / 2], float scale, const BackwardNumbers<C>& lse,
                                                  uint32_t columns) {
#pragma unroll
  for (int j = 0; j < C::kPassing / 8; j++) {
    float l[4];
    lse.of_four(l, columns, j);
#pragma unroll
    for (int e = 0; e < 4; e++) s[j * 4 + e] = exp2_fast(__fmaf_rn(s[j * 4 + e], scale, -l[e]));
  }
}

// d becomes dS = P (d - delta).
template <class C>
__device__ __forceinline__ void take_gradients(float (&d)[C::kPassing / 2], const float (&s)[C::kPassing / 2],
                                               const BackwardNumbers<C>& delta, uint32_t columns) {
#pragma unroll
  for (int j = 0; j < C::kPassing / 8; j++) {
    float t[4];
    delta.of_four(t, columns, j);
#pragma unroll
    for (int e = 0; e < 4; e++) d[j * 4 + e] = s[j * 4 + e] * (d[j * 4 + e] - t[e]);
  }
}

// Scores that are hidden, or of rows that do not exist, become -inf. `row` and `column` are those of the thread's first element.
template <class C>
__device__ __forceinline__ void hide_scores(const BackwardArgs& p, float (&s)[C::kPassing / 2], int32_t first_row,
                                            int32_t column0, int32_t row, int32_t column) {
  if constexpr (C::kByKeys) {
    if (!p.causal || column0 >= first_row + 63) return;  // the last key of this warpgroup is seen by all
#pragma unroll
    for (int i = 0; i < C::kPassing / 2; i++)
      if (i / 4 * 8 + i % 2 < row - column + i % 4 / 2 * 8) s[i] = -INFINITY;
  } else {
    if (column0 + C::kPassing <= p.keys && (!p.causal || column0 + C::kPassing - 1 <= first_row)) return;
    const int32_t low = p.causal && row + 1 < p.keys ? row + 1 : p.keys, high = p.causal && row + 9 < p.keys ? row + 9 : p.keys;
    hide_columns_from<C::kPassing>(s, low - column, high - column);
  }
}

template <class C>
__device__ __forceinline__ void backward_consume(const BackwardArgs& p, const BackwardPlace& place, const CUtensorMap* map1,
                                                 const CUtensorMap* map2, uint32_t shared, uint32_t own_full, uint32_t full,
                                                 uint32_t empty) {
  using T = typename C::T;
  constexpr int kPassing = C::kPassing, kDepth = C::kDepth;
  const int consumer = warp_uniform(threadIdx.x >> 7) - 1, thread = threadIdx.x & 127, lane = thread & 31;
  const int32_t first_row = place.row0 + consumer * 64, row_low = first_row + (thread >> 5) * 16 + (lane >> 2);
  const int32_t pair = (lane & 3) * 2, own_rows = C::kByKeys ? p.keys : p.queries;
  // Causal, by queries: the first warpgroup sees less than the second. By keys it sees more, and the second one's are hidden.
  const int32_t seen = (first_row + 63) / kPassing + 1;
  const int32_t rounds = !C::kByKeys && p.causal && seen < place.rounds ? seen : place.rounds;
  const uint32_t rows1 = shared + consumer * 64 * 128, rows2 = rows1 + C::kOwnedBytes, ring_start = shared + C::kRing;
  const uint64_t own1 = matrix_descriptor(rows1, false), own2 = matrix_descriptor(rows2, false),
                 pass1 = matrix_descriptor(ring_start, false), pass2 = matrix_descriptor(ring_start + C::kPassingBytes, false),
                 pass1_across = matrix_descriptor(ring_start, true, C::kPassingBox),
                 pass2_across = matrix_descriptor(ring_start + C::kPassingBytes, true, C::kPassingBox);

  BackwardNumbers<C> lse, delta;
  if constexpr (!C::kByKeys) {
#pragma unroll
    for (int half = 0; half < 2; half++) {  // they are there up to a multiple of the owned rows
      const int32_t row = row_low + half * 8, head_index = place.batch * p.heads + place.owner_head;
      const float* const at = p.numbers + int64_t(head_index) * p.number_blocks * kNumberBlock + number_place(row);
      lse.row[half] = at[0];
      delta.row[half] = at[kNumberRows];
    }
  }

  float s[kPassing / 2], d[kPassing / 2], sums1[kDepth / 2], sums2[C::kByKeys ? kDepth / 2 : 2];  // sums: gq or gk; gv
  uint32_t fragments1[kPassing / 16][4], fragments2[kPassing / 16][4];                            // of dS and P
  uint32_t held1[C::kHold ? kDepth / 16 : 1][4], held2[C::kHold ? kDepth / 16 : 1][4];            // of the owned rows
#pragma unroll
  for (int i = 0; i < kDepth / 2; i++) {
    sums1[i] = 0.0f;
    if constexpr (C::kByKeys) sums2[i] = 0.0f;
  }
  const auto start_scores = [&](uint32_t at) {
    if constexpr (C::kHold)
      start_rows<T, kPassing, kDepth, C::kPassingBox>(s, held1, pass1 + at);
    else
      start_rows<T, kPassing, kDepth, C::kOwnedBox, C::kPassingBox>(s, own1, pass1 + at);
    wgmma_commit();
  };
  const auto start_dp = [&](uint32_t at) {
    if constexpr (C::kHold)
      start_rows<T, kPassing, kDepth, C::kPassingBox>(d, held2, pass2 + at);
    else
      start_rows<T, kPassing, kDepth, C::kOwnedBox, C::kPassingBox>(d, own2, pass2 + at);
    wgmma_commit();
  };

  int32_t step = 0;
  // s becomes P; returns the address of the columns' deltas.
  const auto take_scores = [&](int32_t stage) {
    const int32_t column0 = (place.first_step + step) * kPassing;
    if (++step == place.steps) step = 0;
    const uint32_t columns = shared + C::kNumbers + stage * C::kNumberBytes + pair * 4;
    hide_scores<C>(p, s, first_row, column0, row_low, column0 + pair);
    take_exponentials<C>(s, p.scale_log2, lse, columns);
    return columns + kNumberRows * 4;
  };
  const auto start_sums1 = [&](uint32_t at) {
    start_columns<T, kPassing, kDepth>(sums1, fragments1, pass1_across + at);
    wgmma_commit();
  };
  const auto start_sums2 = [&](uint32_t at) {
    if constexpr (C::kByKeys) start_columns<T, kPassing, kDepth>(sums2, fragments2, pass2_across + at);
    wgmma_commit();
  };
  const auto hold_sums = [&] {
    wgmma_hold(sums1);
    wgmma_hold(fragments1);
    if constexpr (C::kByKeys) {
      wgmma_hold(sums2);
      wgmma_hold(fragments2);
    }
  };
  const auto place_of_stage = [](int32_t stage) { return static_cast<uint32_t>(stage * (C::kStageBytes / 16)); };

  const auto release = [&](int32_t stage) {
    if constexpr (C::kByKeys) __syncwarp();  // all lanes have read their columns' numbers
    if (lane == 0) barrier_arrive(empty + stage * 8);
  };

  barrier_wait(own_full, 0);
  if constexpr (C::kHold) {
    load_fragments<kDepth, C::kOwnedBox>(held1, rows1);
    load_fragments<kDepth, C::kOwnedBox>(held2, rows2);
  }
  RingPlace<C::kStages> ring;
  if constexpr (!C::kHold) {
    // The sums and what is in flight fill the registers: the other warpgroup keeps the tensor cores busy meanwhile.
#pragma unroll 1
    for (int32_t round = 0; round < rounds; round++, ring.advance()) {
      const uint32_t at = place_of_stage(ring.stage);
      barrier_wait(full + ring.stage * 8, ring.phase);
      wgmma_fence();
      start_scores(at);
      start_dp(at);
      wgmma_wait<1>();
      wgmma_hold(s);
      const uint32_t deltas = take_scores(ring.stage);
      pack_fragments<T, kPassing>(fragments2, s);
      wgmma_fence();
      start_sums2(at);
      wgmma_wait<1>();
      wgmma_hold(d);
      take_gradients<C>(d, s, delta, deltas);
      pack_fragments<T, kPassing>(fragments1, d);
      wgmma_fence();
      start_sums1(at);
      wgmma_wait<0>();
      hold_sums();
      release(ring.stage);
    }
  } else if (rounds > 0) {
    // The sums of a round are made together with the scores of the next one, so that the tensor cores have work while the
    // exponentials are taken.
    RingPlace<C::kStages> before;
    barrier_wait(full, 0);
    wgmma_fence();
    start_scores(0);
    start_dp(0);
    wgmma_wait<0>();
    wgmma_hold(s);
    wgmma_hold(d);
    take_gradients<C>(d, s, delta, take_scores(0));
    pack_fragments<T, kPassing>(fragments1, d);
    pack_fragments<T, kPassing>(fragments2, s);
#pragma unroll 1
    for (int32_t round = 1; round < rounds; round++) {
      ring.advance();
      barrier_wait(full + ring.stage * 8, ring.phase);
      wgmma_fence();
      start_scores(place_of_stage(ring.stage));
      start_dp(place_of_stage(ring.stage));
      start_sums2(place_of_stage(before.stage));
      start_sums1(place_of_stage(before.stage));
      wgmma_wait<3>();
      wgmma_hold(s);
      const uint32_t deltas = take_scores(ring.stage);
      wgmma_wait<2>();
      wgmma_hold(d);
      take_gradients<C>(d, s, delta, deltas);
      wgmma_wait<0>();
      hold_sums();
      release(before.stage);
      before = ring;
      pack_fragments<T, kPassing>(fragments1, d);
      pack_fragments<T, kPassing>(fragments2, s);
    }
    wgmma_fence();
    start_sums2(place_of_stage(before.stage));
    start_sums1(place_of_stage(before.stage));
    wgmma_wait<0>();
    hold_sums();
  }

  if (first_row >= own_rows) return;
  if (p.want1)
    store_tile<T, kDepth>(map1, rows1, C::kOwnedBox, sums1, p.scale, p.scale, 1 + consumer, first_row, place.owner_head,
                          place.batch);
  if constexpr (C::kByKeys)
    if (p.want2)
      store_tile<T, kDepth>(map2, rows2, C::kOwnedBox, sums2, 1.0f, 1.0f, 1 + consumer, first_row, place.owner_head, place.batch);
  finish_stores();
}

#endif

// own1, own2: k and v or q and g; pass1, pass2: the others. result1: gk or gq, result2: gv.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    backward_kernel(const __grid_constant__ CUtensorMap own1, const __grid_constant__ CUtensorMap own2,
                    const __grid_constant__ CUtensorMap pass1, const __grid_constant__ CUtensorMap pass2,
                    const __grid_constant__ CUtensorMap result1, const __grid_constant__ CUtensorMap result2,
                    const __grid_constant__ BackwardArgs p) {
#if SW_SM90A
  extern __shared__ __align__(1024) uint8_t attention_shared[];
  const uint32_t shared = shared_address(attention_shared), full = shared + C::kBarriers, empty = full + C::kStages * 8,
                 own_full = empty + C::kStages * 8;
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
  const BackwardPlace place = BackwardPlace::of<C>(p);
  if (threadIdx.x < 128) {
    registers_down<24>();
    if (threadIdx.x == 0) backward_produce<C>(p, place, &own1, &own2, &pass1, &pass2, shared, own_full, full, empty);
  } else {
    registers_up<240>();
    backward_consume<C>(p, place, &result1, &result2, shared, own_full, full, empty);
  }
#endif
}

}  // namespace shardwise::cuda
