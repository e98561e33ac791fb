// Forward attention of float16 and bfloat16 on Hopper's warpgroup tensor cores (wgmma), depths up
// to 128.
//
// Math: attention.cu. Per tile of queries and step of 128 keys: S = q k^T, running maximum and sum
// of the rows, P = exp2(scale S - maximum), out = out rescale + P v. With a mask S = scale q k^T +
// mask; with dropout P v omits the dropped weights.
// Layout: q, k, v have any batch, head and row strides that are multiples of 16 bytes, and
// contiguous features, so that [B, S, H, D] viewed as [B, H, S, D] needs no copy. Tiles of 128
// queries; at depths up to 64 of 192, unless too many of those do not exist.
// Mapping: one block an SM, which takes tile after tile from a counter, longest first. One thread,
// the producer, has the copy engine (TMA) load q and rings of 2 or 3 tiles of k and v; two or three
// consumer warpgroups have 64 queries each. P is the A operand of the second product straight from
// the accumulators of the first. The products of a step are P v of the previous step and the next
// S, issued together: the exponentials of a step overlap with the products around them. Consumers
// take turns at issuing (named barriers), so that one's exponentials overlap with the others'
// products. Sums leave by stmatrix and the copy engine. Causal: a block skips keys after a tile's
// last query and masks only steps on the diagonal. Separate kernels handle masks and dropout: they
// load mask values and draw random bits while the scores are computed (attention_scores.cuh).
// Bytes: q and out once, k and v once per query tile, mostly from L2 for heads that run together
// (16 MiB). FLOPs 4 S T D (half if causal). Shared memory 193 KiB at depth 128, 144 to 168 KiB at
// depth 64.
// Numerics: float32 scores, sums and accumulators; P is rounded to the dtype of the inputs for the
// second product. The same bits in every run.
// Technique: Shah et al., FlashAttention-3 (arXiv:2407.08608): warp specialisation, ping-pong,
// overlap within a warpgroup.
//
// Versions, us on an H200 (1.7 to 1.98 GHz, 500 to 690 W), bfloat16, PyTorch 2.11 (cuDNN) in the
// same run in brackets:
//                                128 causal   128 full     64 causal    128 full     64 causal
//                                2x16x8192    2x16x8192    2x32x8192    8x16x2048    16x12x1024
//   attention_sm80_forward.cu    4082
//   a block a tile               809 (887)    1757 (1795)  1114 (1253)  435 (415)    108 (89)
//   tiles from a counter (1)     885 (889)    1929 (1814)  1139 (1246)  451 (419)    92 (85)
//   this one                     833 (887)    1777 (1795)  1104 (1253)  421 (415)    83 (89)
// (1) without uniform tile numbers: each product moves its descriptors from registers. 660 TFLOP/s
// of 989 at depth 128 causal; 498 at depth 64, where exponentials are the limit. 32 over 8 heads of
// 128, causal, 8192: 863 (963). With a bool mask, 128, 2x16x4096: 699 us (905), where mma.sync took
// 4046. With dropout, 128 causal, 2x16x8192: 1872 (1946), where mma.sync took 11296; with four keys
// a Philox counter instead of eight 2380, with draws unrolled by two 1973.
// Slower: tiles of 128 x 160 keys at depth 64; two blocks an SM with steps of 64 keys (too few
// registers).
#include "../../primitives/work_counter.cuh"
#include "attention_sm90.cuh"

namespace shardwise::cuda {

struct ForwardArgs {
  AttentionOrder order;
  int32_t work, heads, group_size, queries, keys;
  bool causal;
  float scale;  // of scores, in base 2
  float* lse;
  WorkCounter counter;  // of tiles after the first of each block
  ScoreMods mods;
};

// Modified: there is a mask, dropout or both.
template <class Element, int DepthOfTile, int ConsumerGroups, int NumStages, bool Modified>
struct ForwardTile {
  using T = Element;
  static constexpr bool kModified = Modified;
  static constexpr int kDepth = DepthOfTile, kConsumers = ConsumerGroups, kStages = NumStages;
  static constexpr int kQueries = 64 * kConsumers, kKeys = 128, kBoxes = kDepth / 64;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kQueryBox = kQueries * 128, kKeyBox = kKeys * 128;
  static constexpr int kQueryBytes = kBoxes * kQueryBox, kKeyBytes = kBoxes * kKeyBox;
  // Offsets in shared memory: q, out, the rings of k and v; barriers, full and empty: of k, of v,
  // of q; the number of the tile.
  static constexpr int kOut = kQueryBytes, kK = 2 * kQueryBytes, kV = kK + kStages * kKeyBytes;
  static constexpr int kBarriers = kV + kStages * kKeyBytes,
                       kNumber = kBarriers + (4 * kStages + 2) * 8;
  static constexpr int kSharedBytes = kNumber + 8;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32,
                       kConsumerRegisters = kConsumers == 2 ? 232 : 160;
  static_assert(kSharedBytes <= 232448, "what a block may have");
};

namespace {

#if SW_SM90A

// Addresses of the barriers.
template <class C>
struct ForwardBarriers {
  uint32_t k_full, k_empty, v_full, v_empty, q_full, q_empty;
  __device__ __forceinline__ explicit ForwardBarriers(uint32_t shared)
      : k_full(shared + C::kBarriers),
        k_empty(k_full + C::kStages * 8),
        v_full(k_empty + C::kStages * 8),
        v_empty(v_full + C::kStages * 8),
        q_full(v_empty + C::kStages * 8),
        q_empty(q_full + 8) {}
};

// A tile of queries: its position, and the number of key steps it attends to.
struct ForwardWork {
  int32_t query0, head, batch, steps;
  template <class C>
  __device__ __forceinline__ static ForwardWork of(const ForwardArgs& p, int32_t work) {
    ForwardWork place;
    int32_t tile, head_index;
    p.order.place(work, &tile, &head_index);
    place.query0 = tile * C::kQueries;
    place.head = head_index % p.heads;
    place.batch = head_index / p.heads;
    const int32_t end =
        place.query0 + C::kQueries < p.queries ? place.query0 + C::kQueries : p.queries;
    place.steps = ((p.causal && end < p.keys ? end : p.keys) + C::kKeys - 1) / C::kKeys;
    return place;
  }
};

// The producer thread: takes tiles until none are left, passes their numbers to the consumers (-1
// ends), and loads their operands.
template <class C>
__device__ __forceinline__ void forward_produce(const ForwardArgs& p, const CUtensorMap* map_q,
                                                const CUtensorMap* map_k, const CUtensorMap* map_v,
                                                uint32_t shared,
                                                const ForwardBarriers<C>& barriers) {
  RingPlace<C::kStages> ring;
  RingPlace<1> tiles;
  int32_t work = blockIdx.x;
  for (;; tiles.advance()) {
    barrier_wait(barriers.q_empty, tiles.phase ^ 1);
    store_shared(shared + C::kNumber, work);
    if (work < 0) break;
    const ForwardWork place = ForwardWork::of<C>(p, work);
    const int32_t kv_head = place.head / p.group_size;
    barrier_expect(barriers.q_full, C::kQueryBytes);
    load_tile<C::kBoxes>(shared, C::kQueryBox, map_q, barriers.q_full, place.query0, place.head,
                         place.batch);
    for (int32_t step = 0; step < place.steps; step++, ring.advance()) {
      const int32_t key0 = step * C::kKeys;
      const uint32_t offset = ring.stage * C::kKeyBytes, k_ready = barriers.k_full + ring.stage * 8,
                     v_ready = barriers.v_full + ring.stage * 8;
      barrier_wait(barriers.k_empty + ring.stage * 8, ring.phase ^ 1);
      barrier_expect(k_ready, C::kKeyBytes);
      load_tile<C::kBoxes>(shared + C::kK + offset, C::kKeyBox, map_k, k_ready, key0, kv_head,
                           place.batch);
      barrier_wait(barriers.v_empty + ring.stage * 8, ring.phase ^ 1);
      barrier_expect(v_ready, C::kKeyBytes);
      load_tile<C::kBoxes>(shared + C::kV + offset, C::kKeyBox, map_v, v_ready, key0, kv_head,
                           place.batch);
    }
    // Taken as late as possible: a tile that is reserved early waits for a block that may be late.
    work = p.counter.take(1) + gridDim.x;
    if (work >= p.work) work = -1;
  }
  barrier_arrive(barriers.q_full);
  p.counter.finish(gridDim.x);
}

// The state of a consumer across tiles.
template <class C>
struct ForwardConsumer {
  using T = typename C::T;
  static constexpr int kKeys = C::kKeys, kDepth = C::kDepth;
  using StepMods = Mods<T, kKeys, false, C::kModified>;

  const ForwardArgs& p;
  const ForwardBarriers<C>& barriers;
  const uint32_t shared;
  const int consumer, lane;
  // Consumers use the tensor cores in turn, so that one multiplies while the others compute
  // exponentials.
  const int my_turn, next_turn;
  const uint64_t q, k, v;
  RingPlace<C::kStages> k_ring, v_ring;

  __device__ __forceinline__ ForwardConsumer(const ForwardArgs& args, const ForwardBarriers<C>& b,
                                             uint32_t shared_start)
      : p(args),
        barriers(b),
        shared(shared_start),
        consumer(warp_uniform(threadIdx.x >> 7) - 1),
        lane(threadIdx.x & 31),
        my_turn(1 + consumer),
        next_turn(1 + (consumer + 1) % C::kConsumers),
        q(matrix_descriptor(shared + consumer * 64 * 128, false)),
        k(matrix_descriptor(shared + C::kK, false)),
        v(matrix_descriptor(shared + C::kV, true, C::kKeyBox)) {
    if (consumer == C::kConsumers - 1) arrive_for_threads_of(next_turn, 256);
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) barrier_arrive(barrier);
  }
  __device__ __forceinline__ void wait_for_keys() const {
    barrier_wait(barriers.k_full + k_ring.stage * 8, k_ring.phase);
  }
  __device__ __forceinline__ void start_scores(float (&s)[kKeys / 2]) const {
    wgmma_fence();
    start_rows<T, kKeys, kDepth, C::kQueryBox, C::kKeyBox>(
        s, q, k + static_cast<uint32_t>(k_ring.stage * (C::kKeyBytes / 16)));
    wgmma_commit();
  }
  __device__ __forceinline__ void finish_scores(float (&s)[kKeys / 2], bool last) {
    wgmma_fence_operand(s);
    release(barriers.k_empty + k_ring.stage * 8);
    k_ring.advance();
    if (last) release(barriers.q_empty);
  }
  __device__ __forceinline__ void start_out(float (&out)[kDepth / 2],
                                            const uint32_t (&probabilities)[kKeys / 16][4]) {
    barrier_wait(barriers.v_full + v_ring.stage * 8, v_ring.phase);
    wgmma_fence();
    start_columns<T, kKeys, kDepth>(out, probabilities,
                                    v + static_cast<uint32_t>(v_ring.stage * (C::kKeyBytes / 16)));
    wgmma_commit();
  }
  __device__ __forceinline__ void finish_out(float (&out)[kDepth / 2],
                                             uint32_t (&probabilities)[kKeys / 16][4]) {
    wgmma_wait<0>();
    wgmma_fence_operand(out);
    wgmma_fence_operand(probabilities);
    release(barriers.v_empty + v_ring.stage * 8);
    v_ring.advance();
  }

  // Applies the causal mask to a step of this warpgroup's rows (from row0 on), and the softmax
  // update.
  __device__ __forceinline__ void softmax_rescale(float (&s)[kKeys / 2], int32_t step, int32_t row0,
                                                  int32_t row_low, const StepMods& mods,
                                                  RowState& rows, float (&rescale)[2]) const {
    if constexpr (C::kModified) mods.change(s, p.mods, p.scale);
    const int pair = (lane & 3) * 2;
    mask_keys(s, p.causal, p.keys, row0, row_low, step * kKeys + pair, pair);
    softmax_step(s, scale_of_maximum(), rows, rescale);
    if constexpr (C::kModified) mods.drop(s);
  }
  __device__ __forceinline__ float scale_of_maximum() const {
    return C::kModified ? 1.0f : p.scale;
  }

  __device__ __forceinline__ void tile(const ForwardWork& place, const CUtensorMap* map_out) {
    const int32_t row0 = place.query0 + consumer * 64,
                  row_low = row0 + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    float s[kKeys / 2], out[kDepth / 2], rescale[2];
    uint32_t probabilities[kKeys / 16][4];
    RowState rows;
    StepMods mods;
    const auto load_mods = [&](int32_t step) {
      mods.load(p.mods, place.batch, place.head, p.heads, row_low, step * kKeys + (lane & 3) * 2);
    };
#pragma unroll
    for (int i = 0; i < kDepth / 2; i++) out[i] = 0.0f;

    wait_for_keys();
    start_scores(s);
    load_mods(0);
    wgmma_wait<0>();
    finish_scores(s, place.steps == 1);
    softmax_rescale(s, 0, row0, row_low, mods, rows, rescale);
    pack_fragments<T, kKeys>(probabilities, s);
#pragma unroll 1
    for (int32_t step = 1; step < place.steps; step++) {
      wait_for_keys();
      sync_threads_of(my_turn, 256);
      start_scores(s);
      start_out(out, probabilities);
      arrive_for_threads_of(next_turn, 256);
      load_mods(step);
      wgmma_wait<1>();
      finish_scores(s, step + 1 == place.steps);
      softmax_rescale(s, step, row0, row_low, mods, rows, rescale);
      finish_out(out, probabilities);
      pack_fragments<T, kKeys>(probabilities, s);
#pragma unroll
      for (int i = 0; i < kDepth / 2; i++) out[i] *= rescale[i / 2 % 2];
    }
    start_out(out, probabilities);
    float scales[2];
    float* const lse =
        p.lse ? p.lse + int64_t(place.batch * p.heads + place.head) * p.queries : nullptr;
    finish_rows(rows, scale_of_maximum(),
                C::kModified ? static_cast<float>(p.mods.dropout.keep_scale) : 1.0f, row_low,
                p.queries, lse, scales);
    finish_out(out, probabilities);
    if (row0 < p.queries)
      store_tile<T, kDepth>(map_out, shared + C::kOut + consumer * 64 * 128, C::kQueryBox, out,
                            scales[0], scales[1], 5 + consumer, row0, place.head, place.batch);
  }
};

template <class C>
__device__ __forceinline__ void forward_consume(const ForwardArgs& p, const CUtensorMap* map_out,
                                                uint32_t shared,
                                                const ForwardBarriers<C>& barriers) {
  ForwardConsumer<C> consumer(p, barriers, shared);
  for (RingPlace<1> tiles;; tiles.advance()) {
    barrier_wait(barriers.q_full, tiles.phase);
    // A warp-uniform number: else each product waits for its descriptors, 7 % of the time at depth
    // 128.
    const int32_t work = load_for_warp(shared + C::kNumber);
    if (work < 0) break;
    consumer.tile(ForwardWork::of<C>(p, work), map_out);
  }
  finish_stores();
}

#endif

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap map_q,
                   const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v,
                   const __grid_constant__ CUtensorMap map_out,
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
    barrier_init(barriers.q_empty, 4 * C::kConsumers);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    registers_down<C::kProducerRegisters>();
    if (threadIdx.x == 0) forward_produce<C>(p, &map_q, &map_k, &map_v, shared, barriers);
  } else {
    registers_up<C::kConsumerRegisters>();
    forward_consume<C>(p, &map_out, shared, barriers);
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
  args.order = attention_order(tiles, heads, p.keys * (p.depth + p.value_depth) * 2 / group_size,
                               p.causal, *stream.facts);
  args.heads = static_cast<int32_t>(p.heads);
  args.group_size = static_cast<int32_t>(group_size);
  args.queries = static_cast<int32_t>(p.queries);
  args.keys = static_cast<int32_t>(p.keys);
  args.causal = p.causal;
  args.scale = static_cast<float>(p.scale * 1.4426950408889634);
  args.lse = static_cast<float*>(p.lse);
  args.work = static_cast<int32_t>(tiles * heads);
  args.counter = {stream.arrived, stream.arrived + 1};
  args.mods = p;
  const int32_t blocks = args.work < stream.facts->num_sms ? args.work : stream.facts->num_sms;
  allow_shared(forward_kernel<C>, C::kSharedBytes);
  forward_kernel<C>
      <<<blocks, C::kThreads, C::kSharedBytes, stream.handle>>>(map_q, map_k, map_v, map_out, args);
  return true;
}

template <class T, bool Modified>
bool start_of_depth(const AttentionProblem& p, const Stream& stream) {
  if (p.depth > 64 || p.value_depth > 64)
    return start<ForwardTile<T, 128, 2, 2, Modified>>(p, stream);
  // Tiles of 192 queries are faster, unless too many of them do not exist.
  if constexpr (!Modified)
    if (round_up(p.queries, 192) * 10 <= round_up(p.queries, 128) * 11)
      return start<ForwardTile<T, 64, 3, 3, false>>(p, stream);
  return start<ForwardTile<T, 64, 2, 3, Modified>>(p, stream);
}

template <class T>
bool start_of(const AttentionProblem& p, const Stream& stream) {
  return p.is_modified() ? start_of_depth<T, true>(p, stream) : start_of_depth<T, false>(p, stream);
}

}  // namespace

int& attention_sm90_taken() {
  static thread_local int taken = 0;
  return taken;
}

bool attention_sm90_forward(const AttentionProblem& p, const Stream& stream) {
  if (!attention_sm90_applies(p, *stream.facts)) return false;
  const bool taken =
      p.dtype == DType::BFloat16 ? start_of<bfloat16_t>(p, stream) : start_of<half_t>(p, stream);
  attention_sm90_taken() += taken;
  return taken;
}

}  // namespace shardwise::cuda
