// Forward attention of float16 and bfloat16 on Hopper's warpgroup tensor cores, depths up to 128, without mask and dropout.
#include "attention_wgmma.cuh"
#ifndef FWD64
#define FWD64 3, 128, 3
#endif
#ifndef FWD128
#define FWD128 2, 128, 2
#endif

namespace shardwise::cuda {
namespace {

struct ForwardArgs {
  AttentionOrder order;
  int32_t heads, group_size, queries, keys;
  bool causal;
  float scale;  // of scores, for powers of 2
  float* lse;
};

template <class Element, int DepthOfTile, int ConsumerGroups, int KeysOfTile, int NumStages, int BlocksPerSM = 1>
struct ForwardTile {
  using T = Element;
  static constexpr int kDepth = DepthOfTile, kConsumers = ConsumerGroups, kStages = NumStages;
  static constexpr int kQueries = 64 * kConsumers, kKeys = KeysOfTile, kBlocks = BlocksPerSM, kBoxes = kDepth / 64;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kQueryBox = kQueries * 128, kKeyBox = kKeys * 128;
  static constexpr int kQueryBytes = kBoxes * kQueryBox, kKeyBytes = kBoxes * kKeyBox;
  // In shared memory: q, then out; the rings of k and v; full and empty barriers of both; that of q.
  static constexpr int kK = kQueryBytes, kV = kK + kStages * kKeyBytes, kBarriers = kV + kStages * kKeyBytes;
  static constexpr int kSharedBytes = kBarriers + (4 * kStages + 1) * 8;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32, kConsumerRegisters = kBlocks == 2 ? 104 : kConsumers == 2 ? 240 : 160;
};

#if SW_SM90A

// Addresses of the barriers.
template <class C>
struct ForwardBarriers {
  uint32_t k_full, k_empty, v_full, v_empty, q_full;
  __device__ __forceinline__ explicit ForwardBarriers(uint32_t shared)
      : k_full(shared + C::kBarriers),
        k_empty(k_full + C::kStages * 8),
        v_full(k_empty + C::kStages * 8),
        v_empty(v_full + C::kStages * 8),
        q_full(v_empty + C::kStages * 8) {}
};

struct ForwardPlace {
  int32_t query0, head, batch, steps;  // steps of kKeys keys that a query of the tile sees
  template <class C>
  __device__ __forceinline__ static ForwardPlace of(const ForwardArgs& p) {
    ForwardPlace place;
    int32_t tile, head_index;
    p.order.place(blockIdx.x, &tile, &head_index);
    place.query0 = tile * C::kQueries;
    place.head = head_index % p.heads;
    place.batch = head_index / p.heads;
    const int32_t end = place.query0 + C::kQueries < p.queries ? place.query0 + C::kQueries : p.queries;
    place.steps = ((p.causal && end < p.keys ? end : p.keys) + C::kKeys - 1) / C::kKeys;
    return place;
  }
};

template <class C>
__device__ __forceinline__ void forward_produce(const ForwardArgs& p, const ForwardPlace& place, const CUtensorMap* map_q,
                                                const CUtensorMap* map_k, const CUtensorMap* map_v, uint32_t shared,
                                                const ForwardBarriers<C>& barriers) {
  const int32_t kv_head = place.head / p.group_size;
  barrier_expect(barriers.q_full, C::kQueryBytes);
  load_tile<C::kBoxes>(shared, C::kQueryBox, map_q, barriers.q_full, place.query0, place.head, place.batch);
  RingPlace<C::kStages> ring;
  for (int32_t step = 0; step < place.steps; step++, ring.advance()) {
    const int32_t key0 = step * C::kKeys;
    const uint32_t offset = ring.stage * C::kKeyBytes, k_ready = barriers.k_full + ring.stage * 8,
                   v_ready = barriers.v_full + ring.stage * 8;
    barrier_wait(barriers.k_empty + ring.stage * 8, ring.phase ^ 1);
    barrier_expect(k_ready, C::kKeyBytes);
    load_tile<C::kBoxes>(shared + C::kK + offset, C::kKeyBox, map_k, k_ready, key0, kv_head, place.batch);
    barrier_wait(barriers.v_empty + ring.stage * 8, ring.phase ^ 1);
    barrier_expect(v_ready, C::kKeyBytes);
    load_tile<C::kBoxes>(shared + C::kV + offset, C::kKeyBox, map_v, v_ready, key0, kv_head, place.batch);
  }
}

// Of this thread's two rows: the largest score so far, and the sum of P over this thread's columns.
struct RowState {
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
};

// Replaces scores by P = exp2(scale (score - maximum)) with the maximum so far; `shrink` is what earlier sums have to be multiplied by.
template <int Columns>
__device__ __forceinline__ void softmax_step(float (&s)[Columns / 2], float scale, RowState& rows, float (&shrink)[2]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float largest = rows.maximum[half];
#pragma unroll
    for (int j = 0; j < Columns / 8; j++) largest = fmaxf(largest, fmaxf(s[j * 4 + half * 2], s[j * 4 + half * 2 + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float base = largest == -INFINITY ? 0.0f : largest * scale;
    shrink[half] = exp2_fast(rows.maximum[half] * scale - base);
    rows.maximum[half] = largest;
    float part = 0.0f;
#pragma unroll
    for (int j = 0; j < Columns / 8; j++)
#pragma unroll
      for (int i = j * 4 + half * 2; i < j * 4 + half * 2 + 2; i++) {
        s[i] = exp2_fast(__fmaf_rn(s[i], scale, -base));
        part += s[i];
      }
    rows.sum[half] = rows.sum[half] * shrink[half] + part;
  }
}

template <class C>
__device__ __forceinline__ void forward_consume(const ForwardArgs& p, const ForwardPlace& place, const CUtensorMap* map_out,
                                                uint32_t shared, const ForwardBarriers<C>& barriers) {
  using T = typename C::T;
  constexpr int kKeys = C::kKeys, kDepth = C::kDepth;
  const int consumer = (threadIdx.x >> 7) - 1, thread = threadIdx.x & 127, lane = thread & 31;
  const int32_t row0 = place.query0 + consumer * 64, row_low = row0 + (thread >> 5) * 16 + (lane >> 2), pair = (lane & 3) * 2;
  const uint32_t q_rows = shared + consumer * 64 * 128;
  const uint64_t q = matrix_descriptor(q_rows, false), k = matrix_descriptor(shared + C::kK, false),
                 v = matrix_descriptor(shared + C::kV, true, C::kKeyBox);
  // The tensor cores are given to the consumers in turn, so that one multiplies while the others take exponentials.
  const int my_turn = 1 + consumer, next_turn = 1 + (consumer + 1) % C::kConsumers;
  if (consumer == C::kConsumers - 1) arrive_for_threads_of(next_turn, 256);

  float s[kKeys / 2], out[kDepth / 2];
  uint32_t probabilities[kKeys / 16][4];
  RowState rows;
  float shrink[2];
#pragma unroll
  for (int i = 0; i < kDepth / 2; i++) out[i] = 0.0f;

  const auto start_scores = [&](int32_t stage) {
    start_rows<T, kKeys, kDepth, C::kQueryBox, C::kKeyBox>(s, q, k + static_cast<uint32_t>(stage * (C::kKeyBytes / 16)));
    wgmma_commit();
  };
  const auto start_out = [&](int32_t stage) {
    start_columns<T, kKeys, kDepth>(out, probabilities, v + static_cast<uint32_t>(stage * (C::kKeyBytes / 16)));
    wgmma_commit();
  };
  const auto release = [&](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  const auto take_exponentials = [&](int32_t step) {
    const int32_t key0 = step * kKeys;
    if (key0 + kKeys > p.keys || (p.causal && key0 + kKeys - 1 > row0)) {
      const int32_t low = p.causal && row_low + 1 < p.keys ? row_low + 1 : p.keys;
      const int32_t high = p.causal && row_low + 9 < p.keys ? row_low + 9 : p.keys;
      hide_columns_from<kKeys>(s, low - key0 - pair, high - key0 - pair);
    }
    softmax_step<kKeys>(s, p.scale, rows, shrink);
  };

  RingPlace<C::kStages> k_ring, v_ring;
  barrier_wait(barriers.q_full, 0);
  barrier_wait(barriers.k_full, 0);
  wgmma_fence();
  start_scores(0);
  wgmma_wait<0>();
  wgmma_hold(s);
  release(barriers.k_empty);
  take_exponentials(0);
  pack_fragments<T, kKeys>(probabilities, s);

#pragma unroll 1
  for (int32_t step = 1; step < place.steps; step++) {
    k_ring.advance();
    barrier_wait(barriers.k_full + k_ring.stage * 8, k_ring.phase);
    sync_threads_of(my_turn, 256);
    wgmma_fence();
    start_scores(k_ring.stage);
    barrier_wait(barriers.v_full + v_ring.stage * 8, v_ring.phase);
    wgmma_fence();
    start_out(v_ring.stage);
    arrive_for_threads_of(next_turn, 256);
    wgmma_wait<1>();
    wgmma_hold(s);
    release(barriers.k_empty + k_ring.stage * 8);
    take_exponentials(step);
    wgmma_wait<0>();
    wgmma_hold(out);
    wgmma_hold(probabilities);
    release(barriers.v_empty + v_ring.stage * 8);
    v_ring.advance();
    pack_fragments<T, kKeys>(probabilities, s);
#pragma unroll
    for (int i = 0; i < kDepth / 2; i++) out[i] *= shrink[i / 2 % 2];
  }
  barrier_wait(barriers.v_full + v_ring.stage * 8, v_ring.phase);
  wgmma_fence();
  start_out(v_ring.stage);

  const int32_t head_index = place.batch * p.heads + place.head;
  float scales[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    scales[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
    const int32_t row = row_low + half * 8;
    if (p.lse && pair == 0 && row < p.queries)
      p.lse[int64_t(head_index) * p.queries + row] = sum == 0.0f ? -INFINITY : (rows.maximum[half] * p.scale + log2f(sum)) * kLn2;
  }
  wgmma_wait<0>();
  wgmma_hold(out);
  wgmma_hold(probabilities);
  if (row0 < p.queries)
    store_tile<T, kDepth>(map_out, q_rows, C::kQueryBox, out, scales[0], scales[1], 5 + consumer, row0, place.head, place.batch);
}

#endif

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    forward_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_out,
                   const __grid_constant__ ForwardArgs p) {
#if SW_SM90A
  extern __shared__ __align__(1024) uint8_t attention_shared[];
  const uint32_t shared = shared_address(attention_shared);
  const ForwardBarriers<C> barriers(shared);
  if (threadIdx.x == 0) {
    tensor_map_prefetch(&map_q);
    tensor_map_prefetch(&map_k);
    tensor_map_prefetch(&map_v);
#pragma unroll
    for (int s = 0; s < C::kStages; s++) {
      barrier_init(barriers.k_full + s * 8, 1);
      barrier_init(barriers.v_full + s * 8, 1);
      barrier_init(barriers.k_empty + s * 8, 4 * C::kConsumers);
      barrier_init(barriers.v_empty + s * 8, 4 * C::kConsumers);
    }
    barrier_init(barriers.q_full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  const ForwardPlace place = ForwardPlace::of<C>(p);
  if (threadIdx.x < 128) {
    registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) forward_produce<C>(p, place, &map_q, &map_k, &map_v, shared, barriers);
  } else {
    registers_up<C::kConsumerRegisters>();
    forward_consume<C>(p, place, &map_out, shared, barriers);
  }
#endif
}

template <class C>
bool start(const AttentionProblem& p, const Stream& stream) {
  CUtensorMap map_q, map_k, map_v, map_out;
  if (!attention_map(p, p.q, p.heads, p.queries, p.depth, C::kQueries, &map_q) ||
      !attention_map(p, p.k, p.kv_heads, p.keys, p.depth, C::kKeys, &map_k) ||
      !attention_map(p, p.v, p.kv_heads, p.keys, p.value_depth, C::kKeys, &map_v) ||
      !attention_result_map(p, p.out, p.heads, p.queries, p.value_depth, &map_out))
    return false;
  ForwardArgs args;
  const int64_t tiles = ceil_div(p.queries, C::kQueries), heads = p.batch * p.heads;
  const int64_t group_size = p.heads / p.kv_heads;
  args.order = attention_order(tiles, heads, p.keys * (p.depth + p.value_depth) * 2 / group_size, p.causal);
  args.heads = static_cast<int32_t>(p.heads);
  args.group_size = static_cast<int32_t>(group_size);
  args.queries = static_cast<int32_t>(p.queries);
  args.keys = static_cast<int32_t>(p.keys);
  args.causal = p.causal;
  args.scale = static_cast<float>(p.scale * 1.4426950408889634);
  args.lse = static_cast<float*>(p.lse);
  allow_shared(forward_kernel<C>, C::kSharedBytes);
  forward_kernel<C><<<tiles * heads, C::kThreads, C::kSharedBytes, stream.handle>>>(map_q, map_k, map_v, map_out, args);
  return true;
}

template <class T>
bool start_of_depth(const AttentionProblem& p, const Stream& stream) {
  if (p.depth <= 64 && p.value_depth <= 64) return start<ForwardTile<T, 64, FWD64>>(p, stream);
  return start<ForwardTile<T, 128, FWD128>>(p, stream);
}

}  // namespace

bool attention_wgmma_forward(const AttentionProblem& p, const Stream& stream) {
  if (!attention_wgmma_applies(p, *stream.facts)) return false;
  return p.dtype == DType::BFloat16 ? start_of_depth<bfloat16_t>(p, stream) : start_of_depth<half_t>(p, stream);
}

}  // namespace shardwise::cuda
