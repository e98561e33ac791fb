// Gradient of attention in float16 and bfloat16 on the tensor cores (mma.sync), depths up to 128: two passes of one kernel.
//
//   by queries  a block owns 128 rows of q and g, tiles of k and v pass by:         gq  = scale dS k
//   by keys     a block owns 128 rows of k and v, tiles of q and g pass by, for
//               every query head of the group in order:                            gk  = scale dS^T q,  gv = P'^T g
//
// Both form S and dP as (owned rows) x (passing rows)^T from two pairs of tiles, P = exp2(S - lse), dS = P (dP - delta), and
// multiply P' and dS, as A fragments straight from the accumulators, by the passing tiles. What is q by keys is a column.
// Two stages by cp.async. Causal: tiles on the hidden side of the diagonal are not visited.
// Grid: (key or query) heads x tiles of 128 rows. Bytes: what is owned once, what passes once per tile, from L2; gq, gk, gv once.
// FLOPs: 3 products by queries, 4 by keys, of 2 S T D each (half if causal). Shared memory at depth 128: 137 KiB by queries (64
// passing rows), 103 KiB by keys (32 passing rows, because two accumulators of 128 columns fill the registers); where a block may
// have less, 85 KiB (16 passing rows).
// Numerics: float32 scores, sums and accumulators; P and dS rounded to the inputs' type for the products; ex2.approx. Same bits
// from run to run.
// Technique: Dao, FlashAttention-2 (arXiv:2307.08691).
// On an H200, bfloat16, causal, depth 128, 2x16x8192: 12525 us, where attention_wgmma_backward.cu takes 2918.
#include "attention_mma.cuh"

namespace shardwise::cuda {
namespace {

// Narrow: for GPUs that allow a block 99 KiB of shared memory.
template <class T, int Depth, bool ByKeys, bool Narrow>
struct Config {
  static constexpr int kPassing = Narrow ? 16 : ByKeys && Depth == 128 ? 32 : 64;
  static constexpr int kPitch = Depth + 8;
  static constexpr int kOwnedElements = kStationaryRows * kPitch, kPassingElements = kPassing * kPitch;
  static constexpr size_t kBytes = size_t(2) * (2 * kOwnedElements + 4 * kPassingElements) + 2 * 2 * kPassing * sizeof(float);
};

// lse in base 2 and delta of a query; a query that does not exist or sees nothing gets +inf, which makes its P zero.
__device__ __forceinline__ void load_row_numbers(const AttentionProblem& p, int64_t head_index, int64_t query, float* lse,
                                                 float* delta) {
  *lse = INFINITY;
  *delta = 0.0f;
  if (query >= p.queries) return;
  const float value = static_cast<const float*>(p.lse)[head_index * p.queries + query];
  if (value == -INFINITY) return;
  *lse = to_log2(value);
  *delta = static_cast<const float*>(p.delta)[head_index * p.queries + query];
}

template <class T, int Depth, bool ByKeys, bool Narrow>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    backward_kernel(const __grid_constant__ AttentionProblem p, int32_t tiles) {
  using Cfg = Config<T, Depth, ByKeys, Narrow>;
  constexpr int kPassing = Cfg::kPassing, kPitch = Cfg::kPitch, kStage = Cfg::kPassingElements;
  extern __shared__ uint4 shared[];
  uint16_t* const own1 = reinterpret_cast<uint16_t*>(shared);           // q or k
  uint16_t* const own2 = own1 + Cfg::kOwnedElements;                    // g or v
  uint16_t* const pass1 = own2 + Cfg::kOwnedElements;                   // k or q, two stages
  uint16_t* const pass2 = pass1 + 2 * kStage;                           // v or g, two stages
  float* const numbers = reinterpret_cast<float*>(pass2 + 2 * kStage);  // by keys: [stage][lse, delta][kPassing]

  // Longest first: by queries the last tile, by keys the first one sees most.
  const int32_t tile = ByKeys ? static_cast<int32_t>(blockIdx.x % tiles) : tiles - 1 - static_cast<int32_t>(blockIdx.x % tiles);
  const int64_t owner = blockIdx.x / tiles, own_heads = ByKeys ? p.kv_heads : p.heads;
  const int64_t batch = owner / own_heads, own_head = owner % own_heads, group_size = p.heads / p.kv_heads;
  const int64_t kv_head = ByKeys ? own_head : own_head / group_size, first_head = ByKeys ? own_head * group_size : own_head;
  const int32_t row0 = tile * kStationaryRows;
  const int32_t queries = static_cast<int32_t>(p.queries), keys = static_cast<int32_t>(p.keys);
  const int32_t own_rows = ByKeys ? keys : queries, pass_rows = ByKeys ? queries : keys;

  // The passing rows that can see, or be seen by, the owned ones.
  const int32_t last_row = (row0 + kStationaryRows < own_rows ? row0 + kStationaryRows : own_rows) - 1;
  const int32_t first_step = ByKeys && p.causal ? row0 / kPassing : 0;
  const int32_t pass_end = !ByKeys && p.causal && last_row + 1 < pass_rows ? last_row + 1 : pass_rows;
  const int32_t all_steps = (pass_end + kPassing - 1) / kPassing;
  const int32_t steps = all_steps > first_step ? all_steps - first_step : 0;
  const int32_t rounds = ByKeys ? steps * static_cast<int32_t>(group_size) : steps;

  auto fill_passing = [&](int32_t round) {
    const int64_t head = ByKeys ? first_head + round / steps : first_head;
    const int32_t first = (first_step + (ByKeys ? round % steps : round)) * kPassing;
    const int stage = round & 1;
    if (ByKeys) {
      fill_rows<kPassing, Depth>(pass1 + stage * kStage, RowSource(p.q, batch, head, p.queries, p.depth), first);
      fill_rows<kPassing, Depth>(pass2 + stage * kStage, RowSource(p.g, batch, head, p.queries, p.value_depth), first);
      if (threadIdx.x < kPassing) {
        float* to = numbers + stage * 2 * kPassing + threadIdx.x;
        load_row_numbers(p, batch * p.heads + head, first + static_cast<int32_t>(threadIdx.x), to, to + kPassing);
      }
    } else {
      fill_rows<kPassing, Depth>(pass1 + stage * kStage, RowSource(p.k, batch, kv_head, p.keys, p.depth), first);
      fill_rows<kPassing, Depth>(pass2 + stage * kStage, RowSource(p.v, batch, kv_head, p.keys, p.value_depth), first);
    }
  };
  fill_rows<kStationaryRows, Depth>(
      own1, ByKeys ? RowSource(p.k, batch, kv_head, p.keys, p.depth) : RowSource(p.q, batch, first_head, p.queries, p.depth),
      row0);
  fill_rows<kStationaryRows, Depth>(own2,
                                    ByKeys ? RowSource(p.v, batch, kv_head, p.keys, p.value_depth)
                                           : RowSource(p.g, batch, first_head, p.queries, p.value_depth),
                                    row0);
  if (rounds > 0) fill_passing(0);
  copy_async_commit();

  const int warp_row = static_cast<int>(threadIdx.x >> 5) * 16, group = (threadIdx.x & 31) >> 2, pair = (threadIdx.x & 3) * 2;
  const int32_t row_low = row0 + warp_row + group;
  const uint32_t own1_address = shared_address(own1 + warp_row * kPitch + lane_of_a(kPitch));
  const uint32_t own2_address = shared_address(own2 + warp_row * kPitch + lane_of_a(kPitch));
  const uint32_t pass_row_lane = lane_of_b(kPitch) * 2, pass_column_lane = lane_of_b_transposed(kPitch) * 2;
  const uint32_t pass1_address = shared_address(pass1), pass2_address = shared_address(pass2);
  const float scale = static_cast<float>(p.scale) * kLog2E;

  float row_lse[2] = {0, 0}, row_delta[2] = {0, 0};
  if (!ByKeys)
    for (int half = 0; half < 2; half++)
      load_row_numbers(p, batch * p.heads + first_head, row_low + half * 8, &row_lse[half], &row_delta[half]);

  float sums1[Depth / 8][4], sums2[ByKeys ? Depth / 8 : 1][4];  // gq or gk; gv
#pragma unroll
  for (int j = 0; j < Depth / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      sums1[j][e] = 0.0f;
      if (ByKeys) sums2[ByKeys ? j : 0][e] = 0.0f;
    }

#pragma unroll 1
  for (int32_t round = 0; round < rounds; round++) {
    const int stage = round & 1;
    if (round + 1 < rounds) fill_passing(round + 1);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();

    const int64_t head = ByKeys ? first_head + round / steps : first_head, head_index = batch * p.heads + head;
    const int32_t column0 = (first_step + (ByKeys ? round % steps : round)) * kPassing;
    const int32_t warp_first = row0 + warp_row, warp_last = warp_first + 15;
    // Hidden from this warp as a whole: keys after its last query, queries before its first key.
    const bool hidden = p.causal && (ByKeys ? column0 + kPassing - 1 < warp_first : column0 > warp_last);
    if (!hidden) {
      float s[kPassing / 8][4], d[kPassing / 8][4];
#pragma unroll
      for (int j = 0; j < kPassing / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = d[j][e] = 0.0f;
      const uint32_t stage_bytes = stage * kStage * 2;
      multiply_rows<T, kPassing, Depth>(s, own1_address, pass1_address + stage_bytes + pass_row_lane);
      multiply_rows<T, kPassing, Depth>(d, own2_address, pass2_address + stage_bytes + pass_row_lane);

      const bool edge = warp_last >= own_rows || column0 + kPassing > pass_rows ||
                        (p.causal && (ByKeys ? column0 < warp_last : column0 + kPassing - 1 > warp_first));
      const int64_t mask_base = p.mask.offset(batch, head);
      const float* column_numbers = numbers + stage * 2 * kPassing;
      const bool drops = p.dropout > 0.0f;
      const float keep_scale = static_cast<float>(p.keep_scale);
      const uint32_t kept = drops ? kept_elements<kPassing, ByKeys>(p, head_index, row_low, column0) : 0;
#pragma unroll
      for (int j = 0; j < kPassing / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int column_in_tile = j * 8 + pair + (e & 1);
          const int32_t row = row_low + (e >> 1) * 8, column = column0 + column_in_tile;
          const int32_t query = ByKeys ? column : row, key = ByKeys ? row : column;
          const float lse = ByKeys ? column_numbers[column_in_tile] : row_lse[e >> 1];
          const float delta = ByKeys ? column_numbers[kPassing + column_in_tile] : row_delta[e >> 1];
          float score = s[j][e] * scale;
          if (edge || p.mask.data) {
            if (key >= keys || query >= queries || (p.causal && key > query))
              score = -INFINITY;
            else if (p.mask.data)  // beside a large number lse is rounded: P is never above 1
              score = fminf(score + to_log2(mask_value<float>(p, mask_base, query, key)), lse);
          }
          const float probability = exp2_fast(score - lse);
          const float factor = !drops ? 1.0f : kept >> (j * 4 + e) & 1 ? keep_scale : 0.0f;
          d[j][e] = probability * (d[j][e] * factor - delta);
          s[j][e] = probability * factor;
        }
      if constexpr (ByKeys) multiply_columns<T, kPassing, Depth>(sums2, s, pass2_address + stage_bytes + pass_column_lane);
      multiply_columns<T, kPassing, Depth>(sums1, d, pass1_address + stage_bytes + pass_column_lane);
    }
    __syncthreads();  // before the next round overwrites this stage
  }
  copy_async_wait<0>();

  const float factor = static_cast<float>(p.scale);
  const int32_t depth = static_cast<int32_t>(p.depth), value_depth = static_cast<int32_t>(p.value_depth);
  T* const to = static_cast<T*>(ByKeys ? p.gk : p.gq);
  if (to) store_rows<T, Depth>(to + owner * own_rows * p.depth, sums1, row0 + warp_row, own_rows, depth, factor, factor);
  if constexpr (ByKeys)
    if (p.gv)
      store_rows<T, Depth>(static_cast<T*>(p.gv) + owner * own_rows * p.value_depth, sums2, row0 + warp_row, own_rows,
                           value_depth, 1.0f, 1.0f);
}

template <class T, int Depth, bool ByKeys, bool Narrow>
void start(const AttentionProblem& p, cudaStream_t stream) {
  using Cfg = Config<T, Depth, ByKeys, Narrow>;
  const int64_t tiles = ceil_div(ByKeys ? p.keys : p.queries, kStationaryRows),
                owners = p.batch * (ByKeys ? p.kv_heads : p.heads);
  if (tiles * owners == 0) return;
  const auto kernel = backward_kernel<T, Depth, ByKeys, Narrow>;
  allow_shared(kernel, Cfg::kBytes);
  kernel<<<owners * tiles, kAttentionThreads, Cfg::kBytes, stream>>>(p, static_cast<int32_t>(tiles));
}

template <class T, bool ByKeys>
void start_pass(const AttentionProblem& p, const Stream& stream) {
  if (is_shallow(p))
    start<T, 64, ByKeys, false>(p, stream.handle);
  else if (stream.facts->max_shared_per_block >= static_cast<int64_t>(Config<T, 128, ByKeys, false>::kBytes))
    start<T, 128, ByKeys, false>(p, stream.handle);
  else
    start<T, 128, ByKeys, true>(p, stream.handle);
}

template <class T>
void start_passes(const AttentionProblem& p, const Stream& stream) {
  if (p.gq) start_pass<T, false>(p, stream);
  if (p.gk || p.gv) start_pass<T, true>(p, stream);
}

}  // namespace

void attention_mma_backward(const AttentionProblem& p, const Stream& stream) {
  if (p.dtype == DType::BFloat16)
    start_passes<bfloat16_t>(p, stream);
  else
    start_passes<half_t>(p, stream);
}

}  // namespace shardwise::cuda
