// Forward attention of float16 and bfloat16 on the tensor cores (mma.sync), depths up to 128. Math:
// attention.cu.
//
// Mapping: a block of 4 warps computes 128 queries of one head, each warp 32 of them; two blocks
// share an SM. Tiles of 64 keys and values (32 with a mask or dropout at depth 128) arrive by
// cp.async: the values during the first product, the next keys during the second. Per tile and
// warp: S = q k^T, running maximum and sum of the rows (base 2), P = exp2(S - maximum), out += P v.
// Accumulators and A fragments have the same layout, so P stays in registers. Causal: a block skips
// tiles above the diagonal and masks only tiles on it; the longest query tiles of a head start
// first. Mask and dropout: attention_scores.cuh.
// Grid: heads x query tiles. FLOPs 4 S T D (half if causal).
// Bytes: q and out once, k and v once per query tile, from L2. Shared memory: 68 KiB at depth 128,
// 36 KiB at depth 64. Unaligned rows are copied element by element.
// Numerics: float32 scores, sums and accumulators; P is rounded to the dtype of the inputs for the
// second product; ex2.approx. The same bits in every run.
// Technique: Dao, FlashAttention-2 (arXiv:2307.08691).
//
// Versions, us on an H200 limited to capability 8.0, bfloat16, causal, depth 128, 2x16x8192.
// PyTorch's FlashAttention-2 uses the same instructions and takes 1735; attention_sm90_forward.cu
// takes 833:
//   one kernel that tests for mask and dropout in its loops: exceeds the instruction cache   4082
//   separate kernels for them; a warp has 16 queries, tiles in two stages                    2234
//   a warp has 32 queries and reads half as much shared memory; tiles in one stage           2211
//   a thread fills one column of a tile by one pointer: a third fewer instructions           1893
// 64 causal, 2x32x8192: 2255 (PyTorch 1867); three blocks an SM were 3 % faster before the last
// step, but registers spill. With dropout 3528 (2112); with a bool mask, 128, 2x16x4096: 1655.
#include "attention_sm80.cuh"

namespace shardwise::cuda {
namespace {

// Modified: AttentionProblem::is_modified.
template <class Element, int DepthOfTile, bool Modified>
struct ForwardTile {
  using T = Element;
  static constexpr bool kModified = Modified;
  static constexpr int kDepth = DepthOfTile, kPitch = kDepth + 8;
  static constexpr int kRows = 2;  // groups of 16 queries of a warp
  static constexpr int kThreads = kStationaryRows / (16 * kRows) * 32;
  // keys of a tile; the fragment of a mask fills the registers
  static constexpr int kKeys = Modified && kDepth == 128 ? 32 : 64;
  static constexpr size_t kBytes = size_t(kStationaryRows + 2 * kKeys) * kPitch * 2;
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, 2)
    forward_kernel(const __grid_constant__ AttentionProblem p, int32_t tiles) {
  using T = typename C::T;
  constexpr int kDepth = C::kDepth, kPitch = C::kPitch, kKeys = C::kKeys, kRows = C::kRows;
  extern __shared__ uint4 shared[];
  uint16_t* const q_tile = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const k_tile = q_tile + kStationaryRows * kPitch;
  uint16_t* const v_tile = k_tile + kKeys * kPitch;

  const int64_t head_index = blockIdx.x / tiles;
  const int32_t query0 = (tiles - 1 - static_cast<int32_t>(blockIdx.x % tiles)) * kStationaryRows;
  const int64_t batch = head_index / p.heads, head = head_index % p.heads,
                kv_head = head / (p.heads / p.kv_heads);
  const RowSource q(p.q, batch, head, p.queries, p.depth), k(p.k, batch, kv_head, p.keys, p.depth),
      v(p.v, batch, kv_head, p.keys, p.value_depth);
  const int32_t queries = q.rows, keys = k.rows;
  const int32_t last_query =
      (query0 + kStationaryRows < queries ? query0 + kStationaryRows : queries) - 1;
  const int32_t visible = p.causal && last_query + 1 < keys ? last_query + 1 : keys;
  const int32_t steps = (visible + kKeys - 1) / kKeys;

  fill_rows<C::kThreads, kStationaryRows, kDepth>(q_tile, q, query0);
  fill_rows<C::kThreads, kKeys, kDepth>(k_tile, k, 0);
  copy_async_commit();

  const int lane = threadIdx.x & 31, pair = (lane & 3) * 2,
            warp_row = static_cast<int>(threadIdx.x >> 5) * 16 * kRows;
  // first row of this thread; the others follow at distances of 8
  const int32_t row_low = query0 + warp_row + (lane >> 2);
  const uint32_t q_address = shared_address(q_tile + warp_row * kPitch + lane_of_a(kPitch));
  const uint32_t k_address = shared_address(k_tile + lane_of_b(kPitch));
  const uint32_t v_address = shared_address(v_tile + lane_of_b_transposed(kPitch));
  const float scale = static_cast<float>(p.scale) * kLog2E,
              scale_of_maximum = C::kModified ? 1.0f : scale;

  float out[kRows][kDepth / 2];
  RowState rows[kRows];
#pragma unroll
  for (int m = 0; m < kRows; m++)
#pragma unroll
    for (int i = 0; i < kDepth / 2; i++) out[m][i] = 0.0f;

#pragma unroll 1
  for (int32_t step = 0; step < steps; step++) {
    const int32_t key0 = step * kKeys;
    const bool hidden = p.causal && key0 > query0 + warp_row + 16 * kRows - 1;  // from this warp
    copy_async_wait<0>();
    __syncthreads();  // the keys have arrived, and all warps have read the previous values
    fill_rows<C::kThreads, kKeys, kDepth>(v_tile, v, key0);
    copy_async_commit();
    float s[kRows][kKeys / 2];
#pragma unroll
    for (int m = 0; m < kRows; m++)
#pragma unroll
      for (int i = 0; i < kKeys / 2; i++) s[m][i] = 0.0f;
    if (!hidden) multiply_rows<T, kDepth>(s, q_address, k_address);
    copy_async_wait<0>();
    __syncthreads();  // the values have arrived, and all warps have read the keys
    if (step + 1 < steps) fill_rows<C::kThreads, kKeys, kDepth>(k_tile, k, key0 + kKeys);
    copy_async_commit();
    if (hidden) continue;
#pragma unroll
    for (int m = 0; m < kRows; m++) {
      const int32_t row = row_low + m * 16;
      Mods<T, kKeys, false, C::kModified> mods;
      mods.load(p, batch, head, p.heads, row, key0 + pair);
      if constexpr (C::kModified) mods.change(s[m], p, scale);
      mask_keys(s[m], p.causal, keys, query0 + warp_row + m * 16, row, key0 + pair, pair);
      float rescale[2];
      softmax_step(s[m], scale_of_maximum, rows[m], rescale);
      if constexpr (C::kModified) mods.drop(s[m]);
#pragma unroll
      for (int i = 0; i < kDepth / 2; i++) out[m][i] *= rescale[i / 2 % 2];
    }
    multiply_columns<T, kDepth>(out, s, v_address);
  }
  copy_async_wait<0>();

  float* const lse = p.lse ? static_cast<float*>(p.lse) + head_index * queries : nullptr;
  T* const to = p.out.head<T>(batch, head);
#pragma unroll
  for (int m = 0; m < kRows; m++) {
    float factors[2];
    finish_rows(rows[m], scale_of_maximum,
                C::kModified ? static_cast<float>(p.dropout.keep_scale) : 1.0f, row_low + m * 16,
                queries, lse, factors);
    store_rows<T, kDepth>(to, out[m], query0 + warp_row + m * 16, queries, v.columns,
                          p.out.row_stride, factors[0], factors[1]);
  }
}

template <class C>
void start(const AttentionProblem& p, cudaStream_t stream) {
  const int64_t tiles = ceil_div(p.queries, kStationaryRows);
  allow_shared(forward_kernel<C>, C::kBytes);
  forward_kernel<C><<<p.batch * p.heads * tiles, C::kThreads, C::kBytes, stream>>>(
      p, static_cast<int32_t>(tiles));
}

template <class T, bool Modified>
void start_of_depth(const AttentionProblem& p, cudaStream_t stream) {
  is_shallow(p) ? start<ForwardTile<T, 64, Modified>>(p, stream)
                : start<ForwardTile<T, 128, Modified>>(p, stream);
}

template <class T>
void start_of(const AttentionProblem& p, cudaStream_t stream) {
  p.is_modified() ? start_of_depth<T, true>(p, stream) : start_of_depth<T, false>(p, stream);
}

}  // namespace

void attention_sm80_forward(const AttentionProblem& p, const Stream& stream) {
  if (p.dtype == DType::BFloat16)
    start_of<bfloat16_t>(p, stream.handle);
  else
    start_of<half_t>(p, stream.handle);
}

}  // namespace shardwise::cuda
