// Gradient of attention in float16 and bfloat16 on the tensor cores (mma.sync), depths up to 128:
// two passes of one kernel.
//
//   by queries  a block owns 128 rows of q and g, tiles of k and v pass by:  gq = scale dS k
//   by keys     a block owns 128 rows of k and v, tiles of q and g pass by,
//               for every query head of the group in order:  gk = scale dS^T q,  gv = P'^T g
//
// Both passes compute S and dP as (owned rows) x (passing rows)^T from two pairs of tiles, P =
// exp2(S - lse), dS = P (dP - delta), and multiply P' and dS, as A fragments straight from the
// accumulators, by the passing tiles. By keys a query is a column. Two stages by cp.async. Causal:
// a block skips tiles on the masked side of the diagonal. Mask and dropout: attention_scores.cuh;
// lse and delta: attention_row_stats.cu.
// Grid: (key or query) heads x tiles of 128 rows. FLOPs: 3 products by queries, 4 by keys, of 2 S T
// D each (half if causal).
// Bytes: owned tiles once, passing tiles once per owned tile, from L2; gq, gk, gv once. Shared
// memory at depth 128: 137 KiB (64 passing rows a stage; by keys they are multiplied 32 at a time,
// because two accumulators of 128 columns fill the registers). GPUs with less shared memory per
// block use 85 KiB (16 passing rows).
// Numerics: float32 scores, sums and accumulators; P and dS are rounded to the dtype of the inputs
// for the products; ex2.approx. The same bits in every run.
// Technique: Dao, FlashAttention-2 (arXiv:2307.08691).
//
// Versions, us on an H200 limited to capability 8.0, bfloat16, causal, depth 128, 2x16x8192.
// PyTorch's FlashAttention-2 uses the same instructions, with 5 products and atomics, and takes
// 4915; attention_sm90_backward.cu takes 2918:
//   one kernel that tests for mask and dropout in its loops: exceeds the instruction cache  12525
//   separate kernels for them                                                                9207
//   statistics of rows by words (276 to 36), by keys 64 rows a stage                         7488
//   a thread fills one column of a tile by one pointer (queries 3016, keys 4392)             7443
// 64 causal, 2x32x8192: 8214 (PyTorch 5412). With dropout 9468 (5479); with a bool mask, 128,
// 2x16x4096: 5042. In 99 KiB: 12061.
#include "attention_sm80.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kWarps = kStationaryRows / 16, kThreads = kWarps * 32;

// Narrow: for GPUs that allow a block 99 KiB of shared memory. Modified:
// AttentionProblem::is_modified.
template <class Element, int DepthOfTile, bool OwnKeys, bool Narrow, bool Modified>
struct BackwardTile {
  using T = Element;
  static constexpr bool kByKeys = OwnKeys, kModified = Modified;
  static constexpr int kDepth = DepthOfTile, kPitch = kDepth + 8;
  // rows of a block, and of a stage
  static constexpr int kOwned = kStationaryRows, kPassing = Narrow ? 16 : 64;
  // passing rows multiplied at a time: registers are few
  static constexpr int kStep = kByKeys && kDepth == 128 && !Narrow ? 32 : kPassing;
  static constexpr int kOwnedElements = kOwned * kPitch, kPassingElements = kPassing * kPitch;
  static constexpr size_t kStatBytes = kByKeys ? 2 * kPassing * sizeof(float) : 0;
  static constexpr size_t kBytes =
      size_t(2) * (2 * kOwnedElements + 4 * kPassingElements) + 2 * kStatBytes;
};

// Starts to fill two tiles: of q and g, or of k and v.
template <int Rows, int Depth>
__device__ __forceinline__ void fill_pair(const AttentionProblem& p, bool queries, uint16_t* first,
                                          uint16_t* second, int64_t batch, int64_t head,
                                          int32_t row) {
  const int64_t rows = queries ? p.queries : p.keys;
  fill_rows<kThreads, Rows, Depth>(first,
                                   RowSource(queries ? p.q : p.k, batch, head, rows, p.depth), row);
  fill_rows<kThreads, Rows, Depth>(
      second, RowSource(queries ? p.g : p.v, batch, head, rows, p.value_depth), row);
}

template <class C>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ AttentionProblem p, int32_t tiles) {
  using T = typename C::T;
  constexpr bool kByKeys = C::kByKeys;
  constexpr int kDepth = C::kDepth, kPassing = C::kPassing, kStep = C::kStep, kPitch = C::kPitch,
                kStage = C::kPassingElements;
  extern __shared__ uint4 shared[];
  uint16_t* const own1 = reinterpret_cast<uint16_t*>(shared);  // q or k
  uint16_t* const own2 = own1 + C::kOwnedElements;             // g or v
  uint16_t* const pass1 = own2 + C::kOwnedElements;            // k or q, two stages
  uint16_t* const pass2 = pass1 + 2 * kStage;                  // v or g, two stages
  // by keys: [stage][lse, delta][kPassing]
  float* const stats = reinterpret_cast<float*>(pass2 + 2 * kStage);
  // Longest first: by queries the last tile, by keys the first one sees most.
  const int32_t owner = static_cast<int32_t>(blockIdx.x / tiles),
                tile = static_cast<int32_t>(blockIdx.x % tiles);
  const BackwardWork place = BackwardWork::of<C>(p, kByKeys ? tile : tiles - 1 - tile, owner);
  const auto stats_of = [&](int64_t head, int32_t query) {
    return p.row_stats + (place.batch * p.heads + head) * attention_stat_blocks(p) * kStatBlock +
           stat_place(query);
  };

  const auto fill_passing = [&](int32_t round) {
    const int64_t head = kByKeys ? place.first_head + round / place.steps : place.kv_head;
    const int32_t first = (place.first_step + (kByKeys ? round % place.steps : round)) * kPassing;
    const int stage = round & 1;
    fill_pair<kPassing, kDepth>(p, kByKeys, pass1 + stage * kStage, pass2 + stage * kStage,
                                place.batch, head, first);
    if constexpr (kByKeys)
      if (threadIdx.x < kPassing / 2) {  // 4 of lse, then of delta
        const int which = threadIdx.x / (kPassing / 4), four = threadIdx.x % (kPassing / 4) * 4;
        copy_async(stats + (stage * 2 + which) * kPassing + four,
                   stats_of(head, first) + which * kStatRows + four, 16);
      }
  };
  fill_pair<C::kOwned, kDepth>(p, !kByKeys, own1, own2, place.batch, place.own_head, place.row0);
  if (place.rounds > 0) fill_passing(0);
  copy_async_commit();

  const int lane = threadIdx.x & 31, pair = (lane & 3) * 2,
            warp_row = static_cast<int>(threadIdx.x >> 5) * 16;
  const int32_t warp_first = place.row0 + warp_row, row_low = warp_first + (lane >> 2);
  const uint32_t own1_address = shared_address(own1 + warp_row * kPitch + lane_of_a(kPitch));
  const uint32_t own2_address = shared_address(own2 + warp_row * kPitch + lane_of_a(kPitch));
  const uint32_t along = lane_of_b(kPitch) * 2, across = lane_of_b_transposed(kPitch) * 2;
  const float scale = static_cast<float>(p.scale) * kLog2E,
              keep_scale = C::kModified ? static_cast<float>(p.dropout.keep_scale) : 1.0f;

  StatsFragment<kByKeys> lse, delta;
  if constexpr (!kByKeys)
#pragma unroll
    // the statistics exist up to a multiple of the owned rows
    for (int half = 0; half < 2; half++) {
      const float* const at = stats_of(place.first_head, row_low + half * 8);
      lse.row[half] = at[0];
      delta.row[half] = at[kStatRows];
    }

  float sums1[1][kDepth / 2], sums2[1][kDepth / 2];  // gq or gk; by keys gv
#pragma unroll
  for (int i = 0; i < kDepth / 2; i++) sums1[0][i] = sums2[0][i] = 0.0f;

#pragma unroll 1
  for (int32_t round = 0; round < place.rounds; round++) {
    const int stage = round & 1;
    if (round + 1 < place.rounds) fill_passing(round + 1);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    const int64_t head = kByKeys ? place.first_head + round / place.steps : place.first_head;
    const int32_t first = (place.first_step + (kByKeys ? round % place.steps : round)) * kPassing;
#pragma unroll 1
    for (int32_t step = 0; step < kPassing; step += kStep) {
      const int32_t column0 = first + step;
      // The causal mask hides all of it from this warp: keys after its last query, or queries
      // before its first key.
      if (p.causal && (kByKeys ? column0 + kStep - 1 < warp_first : column0 > warp_first + 15))
        continue;
      float s[1][kStep / 2], d[1][kStep / 2];
#pragma unroll
      for (int i = 0; i < kStep / 2; i++) s[0][i] = d[0][i] = 0.0f;
      Mods<T, kStep, kByKeys, C::kModified> mods;
      mods.load(p, place.batch, head, p.heads, row_low, column0 + pair);
      const uint32_t tile1 = shared_address(pass1 + stage * kStage + step * kPitch),
                     tile2 = shared_address(pass2 + stage * kStage + step * kPitch),
                     columns = shared_address(stats + stage * 2 * kPassing + step + pair);
      multiply_rows<T, kDepth>(s, own1_address, tile1 + along);
      multiply_rows<T, kDepth>(d, own2_address, tile2 + along);
      if constexpr (C::kModified) mods.change(s[0], p, scale);
      if constexpr (kByKeys)
        mask_queries(s[0], p.causal, warp_first + 15, row_low, column0 + pair, pair);
      else
        mask_keys(s[0], p.causal, static_cast<int32_t>(p.keys), warp_first, row_low, column0 + pair,
                  pair);
      softmax_rescale<C::kModified>(s[0], scale, lse, columns);
      scores_gradient(d[0], s[0], delta, columns + kPassing * 4, mods, keep_scale);
      if constexpr (kByKeys) {
        if constexpr (C::kModified) mods.drop(s[0]);
        multiply_columns<T, kDepth>(sums2, s, tile2 + across);
      }
      multiply_columns<T, kDepth>(sums1, d, tile1 + across);
    }
    __syncthreads();  // before the next round overwrites this stage
  }
  copy_async_wait<0>();

  const float factor = static_cast<float>(p.scale);
  const int32_t rows = static_cast<int32_t>(kByKeys ? p.keys : p.queries),
                depth = static_cast<int32_t>(p.depth),
                value_depth = static_cast<int32_t>(p.value_depth);
  const HeadResult& result = kByKeys ? p.gk : p.gq;
  if (result.data)
    store_rows<T, kDepth>(result.head<T>(place.batch, place.own_head), sums1[0], warp_first, rows,
                          depth, result.row_stride, factor, factor);
  if constexpr (kByKeys)
    if (p.gv.data)
      store_rows<T, kDepth>(p.gv.head<T>(place.batch, place.own_head), sums2[0], warp_first, rows,
                            value_depth, p.gv.row_stride, keep_scale, keep_scale);
}

template <class C>
void start(const AttentionProblem& p, cudaStream_t stream) {
  const int64_t tiles = ceil_div(C::kByKeys ? p.keys : p.queries, C::kOwned),
                owners = p.batch * (C::kByKeys ? p.kv_heads : p.heads);
  if (tiles * owners == 0) return;
  allow_shared(backward_kernel<C>, C::kBytes);
  backward_kernel<C>
      <<<owners * tiles, kThreads, C::kBytes, stream>>>(p, static_cast<int32_t>(tiles));
}

// The largest shared memory of a block, which the pass by keys needs.
template <int Depth, bool Narrow>
constexpr int64_t kNeeded =
    static_cast<int64_t>(BackwardTile<half_t, Depth, true, Narrow, false>::kBytes);

template <class T, bool ByKeys, bool Modified>
void start_pass(const AttentionProblem& p, const Stream& stream) {
  if (is_shallow(p))
    start<BackwardTile<T, 64, ByKeys, false, Modified>>(p, stream.handle);
  else if (stream.facts->max_shared_per_block >= kNeeded<128, false>)
    start<BackwardTile<T, 128, ByKeys, false, Modified>>(p, stream.handle);
  else
    start<BackwardTile<T, 128, ByKeys, true, Modified>>(p, stream.handle);
}

template <class T, bool Modified>
void start_passes(const AttentionProblem& p, const Stream& stream) {
  if (p.gq.data) start_pass<T, false, Modified>(p, stream);
  if (p.gk.data || p.gv.data) start_pass<T, true, Modified>(p, stream);
}

template <class T>
void start_of(const AttentionProblem& p, const Stream& stream) {
  p.is_modified() ? start_passes<T, true>(p, stream) : start_passes<T, false>(p, stream);
}

}  // namespace

bool attention_sm80_applies(const AttentionProblem& p, const DeviceFacts& facts) {
  constexpr int64_t kMax = int64_t(1) << 30;
  // the forward pass needs less
  const int64_t needed = is_shallow(p) ? kNeeded<64, false> : kNeeded<128, true>;
  return (p.dtype == DType::Float16 || p.dtype == DType::BFloat16) && mask_fits(p) &&
         p.depth <= 128 && p.value_depth <= 128 && facts.max_shared_per_block >= needed &&
         p.queries < kMax && p.keys < kMax && p.lse_dtype == DType::Float32;
}

void attention_sm80_backward(const AttentionProblem& p, const Stream& stream) {
  if (p.dtype == DType::BFloat16)
    start_of<bfloat16_t>(p, stream);
  else
    start_of<half_t>(p, stream);
}

}  // namespace shardwise::cuda
