// Forward attention of float16 and bfloat16 on the tensor cores (mma.sync), depths up to 128. Math: attention.cu.
//
// A block computes 128 queries of one head, a warp 16 of them; tiles of 64 keys and values (48 where a block may have less than
// 102 KiB of shared memory) pass through two stages of it by cp.async, the next one under the products of this one. Per tile and
// warp: S = q k^T, running maximum and sum of the rows (base 2), P = exp2(S - maximum) as the A fragments of out += P v:
// accumulators and A fragments have the same layout, so P never leaves registers. Causal: tiles above the diagonal are not
// visited, only tiles on it are masked; a head's longest query tiles start first.
// Grid: heads x query tiles. FLOPs 4 S T D (half if causal); bytes: q and out once, k and v once per query tile, from L2.
// Shared memory: 102 KiB at depth 128 (85 with 48 keys), 54 KiB at depth 64. Unaligned rows come by elements.
// Numerics: float32 scores, sums and accumulators, P rounded to the inputs' type for the second product; ex2.approx. Same bits
// from run to run.
// Technique: Dao, FlashAttention-2 (arXiv:2307.08691).
// On an H200, bfloat16, causal, depth 128, 2x16x8192: 4082 us, where attention_wgmma_forward.cu takes 833.
#include "attention_mma.cuh"

namespace shardwise::cuda {
namespace {

// kKeys: of a tile.
template <class T, int Depth, int kKeys>
__global__ void __launch_bounds__(kAttentionThreads, Depth == 64 ? 2 : 1)
    forward_kernel(const __grid_constant__ AttentionProblem p, int32_t tiles) {
  constexpr int kPitch = Depth + 8, kTileElements = kKeys * kPitch;
  extern __shared__ uint4 shared[];
  uint16_t* const q_tile = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const k_tiles = q_tile + kStationaryRows * kPitch;
  uint16_t* const v_tiles = k_tiles + 2 * kTileElements;

  const int64_t head_index = blockIdx.x / tiles;
  const int32_t query0 = (tiles - 1 - static_cast<int32_t>(blockIdx.x % tiles)) * kStationaryRows;
  const int64_t batch = head_index / p.heads, head = head_index % p.heads, kv_head = head / (p.heads / p.kv_heads);
  const RowSource q(p.q, batch, head, p.queries, p.depth), k(p.k, batch, kv_head, p.keys, p.depth),
      v(p.v, batch, kv_head, p.keys, p.value_depth);
  const int32_t queries = q.rows, keys = k.rows;
  const int32_t last_query = (query0 + kStationaryRows < queries ? query0 + kStationaryRows : queries) - 1;
  const int32_t visible = p.causal && last_query + 1 < keys ? last_query + 1 : keys;
  const int32_t steps = (visible + kKeys - 1) / kKeys;

  fill_rows<kStationaryRows, Depth>(q_tile, q, query0);
  fill_rows<kKeys, Depth>(k_tiles, k, 0);
  fill_rows<kKeys, Depth>(v_tiles, v, 0);
  copy_async_commit();

  const int warp_row = static_cast<int>(threadIdx.x >> 5) * 16, group = (threadIdx.x & 31) >> 2, pair = (threadIdx.x & 3) * 2;
  const int32_t row_low = query0 + warp_row + group;  // this thread's rows are row_low and row_low + 8
  const uint32_t q_address = shared_address(q_tile + warp_row * kPitch + lane_of_a(kPitch));
  const uint32_t k_address = shared_address(k_tiles + lane_of_b(kPitch));
  const uint32_t v_address = shared_address(v_tiles + lane_of_b_transposed(kPitch));
  const float scale = static_cast<float>(p.scale) * kLog2E;
  const int64_t mask_base = p.mask.offset(batch, head);

  float out[Depth / 8][4];
#pragma unroll
  for (int j = 0; j < Depth / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) out[j][e] = 0.0f;
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};

  constexpr bool kHoldQueries = Depth == 128;  // there is room for their fragments in the registers
  uint32_t q_fragments[Depth / 16][4];

#pragma unroll 1
  for (int32_t step = 0; step < steps; step++) {
    const int32_t key0 = step * kKeys;
    const int stage = step & 1;
    if (step + 1 < steps) {
      fill_rows<kKeys, Depth>(k_tiles + (stage ^ 1) * kTileElements, k, key0 + kKeys);
      fill_rows<kKeys, Depth>(v_tiles + (stage ^ 1) * kTileElements, v, key0 + kKeys);
    }
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    if (kHoldQueries && step == 0)
#pragma unroll
      for (int i = 0; i < Depth / 16; i++) load_matrices(q_fragments[i], q_address + i * 32);

    if (!p.causal || key0 <= query0 + warp_row + 15) {  // else this warp sees nothing of the tile
      float s[kKeys / 8][4];
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
      const uint32_t k_stage = k_address + stage * kTileElements * 2;
      if constexpr (kHoldQueries)
        multiply_rows<T, kKeys, Depth>(s, q_fragments, k_stage);
      else
        multiply_rows<T, kKeys, Depth>(s, q_address, k_stage);

      const bool edge = key0 + kKeys > keys || (p.causal && key0 + kKeys - 1 > query0 + warp_row);
#pragma unroll
      for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          s[j][e] *= scale;
          if (edge || p.mask.data) {
            const int32_t query = row_low + (e >> 1) * 8, key = key0 + j * 8 + pair + (e & 1);
            if (key >= keys || (p.causal && key > query))
              s[j][e] = -INFINITY;
            else if (p.mask.data && query < queries)
              s[j][e] += to_log2(mask_value<float>(p, mask_base, query, key));
          }
        }

#pragma unroll
      for (int half = 0; half < 2; half++) {
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < kKeys / 8; j++) largest = fmaxf(largest, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
        largest = fmaxf(largest, maximum[half]);
        const float base = largest == -INFINITY ? 0.0f : largest, shrink = exp2_fast(maximum[half] - base);
        maximum[half] = largest;
        float part = 0.0f;
#pragma unroll
        for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
          for (int e = half * 2; e < half * 2 + 2; e++) {
            s[j][e] = exp2_fast(s[j][e] - base);
            part += s[j][e];
          }
        sum[half] = sum[half] * shrink + part;
#pragma unroll
        for (int j = 0; j < Depth / 8; j++) {
          out[j][half * 2] *= shrink;
          out[j][half * 2 + 1] *= shrink;
        }
      }
      if (p.dropout > 0.0f) {
        const float keep_scale = static_cast<float>(p.keep_scale);
        const uint32_t kept = kept_elements<kKeys, false>(p, head_index, row_low, key0);
#pragma unroll
        for (int j = 0; j < kKeys / 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) s[j][e] = kept >> (j * 4 + e) & 1 ? s[j][e] * keep_scale : 0.0f;
      }
      multiply_columns<T, kKeys, Depth>(out, s, v_address + stage * kTileElements * 2);
    }
    __syncthreads();  // before the next round overwrites this stage
  }
  copy_async_wait<0>();

  float scales[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    scales[half] = sum[half] == 0.0f ? 0.0f : 1.0f / sum[half];
    const int32_t row = row_low + half * 8;
    if (p.lse && pair == 0 && row < queries)
      static_cast<float*>(p.lse)[head_index * queries + row] =
          sum[half] == 0.0f ? -INFINITY : (maximum[half] + log2f(sum[half])) * kLn2;
  }
  T* to = static_cast<T*>(p.out) + head_index * queries * p.value_depth;
  store_rows<T, Depth>(to, out, query0 + warp_row, queries, v.columns, scales[0], scales[1]);
}

constexpr int64_t shared_bytes(int depth, int keys) { return int64_t(kStationaryRows + 4 * keys) * (depth + 8) * 2; }

template <class T, int Depth, int kKeys>
void start(const AttentionProblem& p, cudaStream_t stream) {
  constexpr size_t bytes = shared_bytes(Depth, kKeys);
  const int64_t tiles = ceil_div(p.queries, kStationaryRows);
  allow_shared(forward_kernel<T, Depth, kKeys>, bytes);
  forward_kernel<T, Depth, kKeys><<<p.batch * p.heads * tiles, kAttentionThreads, bytes, stream>>>(p, static_cast<int32_t>(tiles));
}

template <class T>
void start_for(const AttentionProblem& p, const Stream& stream) {
  if (is_shallow(p))
    start<T, 64, 64>(p, stream.handle);
  else if (stream.facts->max_shared_per_block >= shared_bytes(128, 64))
    start<T, 128, 64>(p, stream.handle);
  else  // compute capability 8.6 and 8.9 allow a block 99 KiB
    start<T, 128, 48>(p, stream.handle);
}

}  // namespace

bool attention_mma_applies(const AttentionProblem& p, const DeviceFacts& facts, bool backward) {
  constexpr int64_t kMax = int64_t(1) << 30;
  const bool shallow = is_shallow(p);
  const int64_t of_backward = (shallow ? 76 : 86) << 10;  // rounded up
  const int64_t shared = backward ? of_backward : shallow ? shared_bytes(64, 64) : shared_bytes(128, 48);  // of the smallest tiles
  return (p.dtype == DType::Float16 || p.dtype == DType::BFloat16) && p.depth <= 128 && p.value_depth <= 128 &&
         facts.max_shared_per_block >= shared && p.queries < kMax && p.keys < kMax && p.lse_dtype == DType::Float32;
}

void attention_mma_forward(const AttentionProblem& p, const Stream& stream) {
  if (p.dtype == DType::BFloat16)
    start_for<bfloat16_t>(p, stream);
  else
    start_for<half_t>(p, stream);
}

}  // namespace shardwise::cuda
