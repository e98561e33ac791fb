// Statistics for the gradient of attention on tensor cores: lse of each query in base 2, and delta
// = sum over columns of g y.
//
// Layout: g and y, the output of forward, have any strides; the results are stored as attention.cuh defines,
// padded to whole tiles of 128 queries.
// Mapping: 16 lanes a row. Each lane takes 8 columns as a word if rows are aligned (depths up to
// 128), else column by column.
// Grid: blocks of 256 threads for 16 queries each. Operations: a product and a sum for each element
// of g.
// Bytes: g and y once, lse once, two float32 a query. Numerics: float32, a fixed order.
// Source: Dao, FlashAttention-2 (arXiv:2307.08691), algorithm 2. On one H200, bfloat16, 2x16x8192,
// depth 128: 36 us (3.9 TB/s); a warp a row, element by element, took 276.
#include "../../primitives/packed.cuh"
#include "attention.cuh"

namespace shardwise::cuda {
namespace {

template <class T, bool Words>
__global__ void __launch_bounds__(256) row_stats_kernel(AttentionProblem p, int64_t blocks) {
  const int64_t row = int64_t(blockIdx.x) * 16 + (threadIdx.x >> 4), padded = blocks * kStatRows;
  const int64_t head_index = row / padded, query = row % padded;
  const int lane = threadIdx.x & 15;
  const bool exists = query < p.queries;
  const T* const g = static_cast<const T*>(p.g.data) +
                     p.g.offset(head_index / p.heads, head_index % p.heads) +
                     query * p.g.row_stride;
  const T* const y = static_cast<const T*>(p.y.data) +
                     p.y.offset(head_index / p.heads, head_index % p.heads) +
                     query * p.y.row_stride;
  float sum = 0.0f;
  if constexpr (Words) {
    if (exists && lane * 8 < p.value_depth) {
      float a[8], b[8];
      unpack<T>(*reinterpret_cast<const uint4*>(g + lane * 8), a);
      unpack<T>(*reinterpret_cast<const uint4*>(y + lane * 8), b);
#pragma unroll
      for (int i = 0; i < 8; i++) sum += a[i] * b[i];
    }
  } else if (exists) {
    for (int64_t d = lane; d < p.value_depth; d += 16)
      sum +=
          to_compute<float>(g[d * p.g.column_stride]) * to_compute<float>(y[d * p.y.column_stride]);
  }
#pragma unroll
  for (int lanes = 8; lanes > 0; lanes >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (lane != 0) return;
  const float lse =
      exists ? static_cast<const float*>(p.lse)[head_index * p.queries + query] : -INFINITY;
  float* const to = p.row_stats + stat_place(row);
  to[0] = lse == -INFINITY ? INFINITY : to_log2(lse);
  to[kStatRows] = lse == -INFINITY ? 0.0f : sum;
}

template <class T>
void start(const AttentionProblem& p, cudaStream_t stream) {
  const int64_t blocks = attention_stat_blocks(p);
  const HeadView &g = p.g, &y = p.y;
  const bool words =
      p.value_depth % 8 == 0 && g.column_stride == 1 && y.column_stride == 1 &&
      (g.batch_stride | g.head_stride | g.row_stride) % 8 == 0 &&
      (y.batch_stride | y.head_stride | y.row_stride) % 8 == 0 &&
      (reinterpret_cast<uintptr_t>(g.data) | reinterpret_cast<uintptr_t>(y.data)) % 16 == 0;
  const auto kernel = words ? row_stats_kernel<T, true> : row_stats_kernel<T, false>;
  const int64_t grid = p.batch * p.heads * blocks * (kStatRows / 16);
  kernel<<<grid, 256, 0, stream>>>(p, blocks);
}

}  // namespace

void attention_row_stats(const AttentionProblem& p, cudaStream_t stream) {
  if (p.dtype == DType::BFloat16)
    start<bfloat16_t>(p, stream);
  else
    start<half_t>(p, stream);
}

}  // namespace shardwise::cuda
