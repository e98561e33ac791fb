// Attention and its gradient on the CUDA cores: float32 and float64, 16-bit floats deeper than 128,
// any depth and strides. Math: attention.cu.
//
// Mapping: 256 threads (16 x 16) compute tiles of 64 owned rows x 64 passing rows, 4 x 4 elements
// per thread. A tile of scores is a product over the depth in steps of 8 through shared memory
// (score_tile). As a tile of weights it is stored in shared memory and multiplied by the passing
// rows, 64 columns of result at a time (accumulate_tile), again in steps of 8. A block computes 128
// columns of its results; deeper ones are split over blockIdx.y, which recomputes the scores.
//   forward     owned q, passing k, v:  running maximum and sum of each row, out = P' v
//   by queries  owned q, g, passing k, v:  gq = scale dS k
//   by keys     owned k, v, passing q, g of every query head of the group:
//               gk = scale dS^T q, gv = P'^T g
// Kernels read inputs of any dtype, so there is one instantiation per accumulation type (float32,
// float64).
// Grid: (heads x tiles of owned rows, columns of results / 128). FLOPs 4 S T D forward, 14 backward
// (half if causal).
// Bytes: each pair of tiles reads both, the owned rows again for each passing tile; results once.
// Numerics: all in the accumulation type, exponentials to its precision. The same bits in every
// run.
// Source: Rabe and Staats (arXiv:2112.05682), Dao et al. (arXiv:2205.14135). On an H200, float32,
// causal, depth 64, 4x12x1024: 1094 us, backward 2902 (5.9 and 5.5 of 67 TFLOP/s). No other version
// was timed.
#include "../../primitives/vector.cuh"
#include "attention.cuh"

namespace shardwise::cuda {
namespace {

// kChunks x 64 columns of result per block
constexpr int kTile = 64, kStep = 8, kThreads = 256, kChunks = 2;

__device__ __forceinline__ float exponential(float v) { return expf(v); }
__device__ __forceinline__ double exponential(double v) { return exp(v); }
__device__ __forceinline__ float logarithm(float v) { return logf(v); }
__device__ __forceinline__ double logarithm(double v) { return log(v); }
__device__ __forceinline__ float largest_of(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double largest_of(double a, double b) { return fmax(a, b); }

// Reads a dtype that accumulates in C: float64 in double, the others in float.
template <class C>
__device__ __forceinline__ C load_as(const void* base, int64_t index, DType dtype) {
  if constexpr (sizeof(C) == 8)
    return static_cast<const double*>(base)[index];
  else if (dtype == DType::Float32)
    return static_cast<const float*>(base)[index];
  else if (dtype == DType::BFloat16)
    return to_compute<C>(static_cast<const bfloat16_t*>(base)[index]);
  else
    return to_compute<C>(static_cast<const half_t*>(base)[index]);
}

template <class C>
__device__ __forceinline__ void store_as(void* base, int64_t index, DType dtype, C value) {
  if constexpr (sizeof(C) == 8)
    static_cast<double*>(base)[index] = value;
  else if (dtype == DType::Float32)
    static_cast<float*>(base)[index] = value;
  else if (dtype == DType::BFloat16)
    static_cast<bfloat16_t*>(base)[index] = from_compute<bfloat16_t>(value);
  else
    static_cast<half_t*>(base)[index] = from_compute<half_t>(value);
}

template <class C>
struct Shared {
  C a[kStep][kTile + 4], b[kStep][kTile + 4];
  C weights[kTile][kTile + 1];
};

// Rows of one head.
struct Rows {
  const void* data;
  int64_t base, row_stride, column_stride, rows, columns;

  __device__ __forceinline__ Rows(const HeadView& v, int64_t batch, int64_t head, int64_t row_count,
                                  int64_t column_count)
      : data(v.data),
        base(v.offset(batch, head)),
        row_stride(v.row_stride),
        column_stride(v.column_stride),
        rows(row_count),
        columns(column_count) {}

  template <class C>
  __device__ __forceinline__ C at(int64_t row, int64_t column, DType dtype) const {
    return row < rows && column < columns
               ? load_as<C>(data, base + row * row_stride + column * column_stride, dtype)
               : C(0);
  }
};

// out[i][j] += sum over the columns of a[a0 + 4 ty + i] b[b0 + 4 tx + j].
template <class C>
__device__ __forceinline__ void score_tile(C (&out)[4][4], const Rows& a, int64_t a0, const Rows& b,
                                           int64_t b0, DType dtype, Shared<C>& shared) {
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll 1
  for (int64_t d0 = 0; d0 < a.columns; d0 += kStep) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile * kStep / kThreads; i++) {
      const int index = threadIdx.x + i * kThreads, row = index / kStep, d = index % kStep;
      shared.a[d][row] = a.at<C>(a0 + row, d0 + d, dtype);
      shared.b[d][row] = b.at<C>(b0 + row, d0 + d, dtype);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kStep; d++) {
      const Vec<C, 4> av = load_vec<4>(&shared.a[d][ty * 4]),
                      bv = load_vec<4>(&shared.b[d][tx * 4]);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[i][j] += av[i] * bv[j];
    }
  }
}

// out[chunk][i][j] += sum over the 64 passing rows of weights[4 ty + i][row] x[x0 + row][column0 +
// 64 chunk + 4 tx + j].
template <class C>
__device__ __forceinline__ void accumulate_tile(C (&out)[kChunks][4][4], const C (&weights)[4][4],
                                                const Rows& x, int64_t x0, int64_t column0,
                                                DType dtype, Shared<C>& shared) {
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) shared.weights[ty * 4 + i][tx * 4 + j] = weights[i][j];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; chunk++) {
    const int64_t first = column0 + chunk * kTile;
    if (first >= x.columns) break;
#pragma unroll 1
    for (int k0 = 0; k0 < kTile; k0 += kStep) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kTile * kStep / kThreads; i++) {
        const int index = threadIdx.x + i * kThreads, k = index / kTile, column = index % kTile;
        shared.b[k][column] = x.at<C>(x0 + k0 + k, first + column, dtype);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kStep; k++) {
        const Vec<C, 4> xv = load_vec<4>(&shared.b[k][tx * 4]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const C w = shared.weights[ty * 4 + i][k0 + k];
#pragma unroll
          for (int j = 0; j < 4; j++) out[chunk][i][j] += w * xv[j];
        }
      }
    }
  }
}

// Writes 64 rows of results, scaled per row, as contiguous rows of `columns`.
template <class C>
__device__ __forceinline__ void store_tile(const HeadResult& to, DType dtype,
                                           const C (&values)[kChunks][4][4], const C (&scales)[4],
                                           int64_t batch, int64_t head, int64_t row0, int64_t rows,
                                           int64_t column0, int64_t columns) {
  const int64_t base = to.offset(batch, head);
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; chunk++)
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int64_t row = row0 + ty * 4 + i, column = column0 + chunk * kTile + tx * 4 + j;
        if (row < rows && column < columns)
          store_as<C>(to.data, base + row * to.row_stride + column, dtype,
                      values[chunk][i][j] * scales[i]);
      }
}

// A score after mask and causal order: -inf if it is masked.
template <class C>
__device__ __forceinline__ C masked_score(const AttentionProblem& p, C product, int64_t mask_base,
                                          int64_t query, int64_t key) {
  if (query >= p.queries || key >= p.keys || (p.causal && key > query)) return C(-INFINITY);
  const C score = product * C(p.scale);
  return p.mask.data ? score + mask_value<C>(p, mask_base, query, key) : score;
}

// Dropout of this thread's 4 x 4 weights, (i, j) at bit i * 4 + j. Not unrolled, because it is
// rarely used.
template <bool ByKeys>
__device__ __forceinline__ uint32_t kept_weights(const AttentionProblem& p, int64_t head_index,
                                                 int64_t row0, int64_t column0) {
  uint32_t kept = 0;
#pragma unroll 1
  for (int b = 0; b < 16; b++) {
    const int64_t row = row0 + (threadIdx.x >> 4) * 4 + (b >> 2),
                  column = column0 + (threadIdx.x & 15) * 4 + (b & 3);
    if (survives(p, head_index, ByKeys ? column : row, ByKeys ? row : column)) kept |= 1u << b;
  }
  return kept;
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    simt_forward(const __grid_constant__ AttentionProblem p, int64_t tiles) {
  __shared__ alignas(16) Shared<C> shared;
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
  const int64_t head_index = blockIdx.x / tiles, query0 = (tiles - 1 - blockIdx.x % tiles) * kTile;
  const int64_t batch = head_index / p.heads, head = head_index % p.heads,
                kv_head = head / (p.heads / p.kv_heads);
  const int64_t column0 = int64_t(blockIdx.y) * kChunks * kTile,
                mask_base = p.mask.offset(batch, head);
  const Rows q(p.q, batch, head, p.queries, p.depth), k(p.k, batch, kv_head, p.keys, p.depth),
      v(p.v, batch, kv_head, p.keys, p.value_depth);
  const int64_t end = p.causal && query0 + kTile < p.keys ? query0 + kTile : p.keys;

  C out[kChunks][4][4] = {};
  C maximum[4], sum[4] = {};
#pragma unroll
  for (int i = 0; i < 4; i++) maximum[i] = C(-INFINITY);
  for (int64_t key0 = 0; key0 < end; key0 += kTile) {
    C s[4][4] = {};
    score_tile(s, q, query0, k, key0, p.dtype, shared);
    const uint32_t kept =
        p.dropout.drop_below > 0 ? kept_weights<false>(p, head_index, query0, key0) : ~0u;
    const C keep_scale = p.dropout.drop_below > 0 ? C(p.dropout.keep_scale) : C(1);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      C largest = maximum[i];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i][j] = masked_score(p, s[i][j], mask_base, query0 + ty * 4 + i, key0 + tx * 4 + j);
        largest = largest_of(largest, s[i][j]);
      }
#pragma unroll
      for (int mask = 8; mask > 0; mask >>= 1)
        largest = largest_of(largest, __shfl_xor_sync(0xffffffffu, largest, mask));
      const C base = largest == C(-INFINITY) ? C(0) : largest,
              rescale = exponential(maximum[i] - base);
      maximum[i] = largest;
      sum[i] *= rescale;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const C weight = exponential(s[i][j] - base);
        sum[i] += weight;
        s[i][j] = kept >> (i * 4 + j) & 1 ? weight * keep_scale : C(0);
      }
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[chunk][i][j] *= rescale;
    }
    accumulate_tile(out, s, v, key0, column0, p.dtype, shared);
  }
  C scales[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int mask = 8; mask > 0; mask >>= 1) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], mask);
    scales[i] = sum[i] == C(0) ? C(0) : C(1) / sum[i];
    const int64_t query = query0 + ty * 4 + i;
    if (p.lse && tx == 0 && blockIdx.y == 0 && query < p.queries)
      store_any<C>(p.lse, head_index * p.queries + query, p.lse_dtype,
                   sum[i] == C(0) ? C(-INFINITY) : maximum[i] + logarithm(sum[i]));
  }
  store_tile(p.out, p.dtype, out, scales, batch, head, query0, p.queries, column0, p.value_depth);
}

template <class C, bool ByKeys>
__global__ void __launch_bounds__(kThreads)
    simt_backward(const __grid_constant__ AttentionProblem p, int64_t tiles) {
  __shared__ alignas(16) Shared<C> shared;
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
  const int64_t owner = blockIdx.x / tiles, own_heads = ByKeys ? p.kv_heads : p.heads,
                group_size = p.heads / p.kv_heads;
  const int64_t batch = owner / own_heads, own_head = owner % own_heads,
                kv_head = ByKeys ? own_head : own_head / group_size;
  const int64_t row0 = (ByKeys ? blockIdx.x % tiles : tiles - 1 - blockIdx.x % tiles) * kTile;
  const int64_t column0 = int64_t(blockIdx.y) * kChunks * kTile;
  const int64_t begin = ByKeys && p.causal ? row0 : 0;
  const int64_t end = ByKeys                              ? p.queries
                      : p.causal && row0 + kTile < p.keys ? row0 + kTile
                                                          : p.keys;
  const Rows k(p.k, batch, kv_head, p.keys, p.depth), v(p.v, batch, kv_head, p.keys, p.value_depth);

  C sums1[kChunks][4][4] = {}, sums2[kChunks][4][4] = {};  // gq or gk; gv
  for (int64_t in_group = 0; in_group < (ByKeys ? group_size : 1); in_group++) {
    const int64_t head = ByKeys ? own_head * group_size + in_group : own_head,
                  head_index = batch * p.heads + head;
    const int64_t mask_base = p.mask.offset(batch, head);
    const Rows q(p.q, batch, head, p.queries, p.depth),
        g(p.g, batch, head, p.queries, p.value_depth);
    for (int64_t pass0 = begin; pass0 < end; pass0 += kTile) {
      C s[4][4] = {}, d[4][4] = {};
      score_tile(s, ByKeys ? k : q, row0, ByKeys ? q : k, pass0, p.dtype, shared);
      score_tile(d, ByKeys ? v : g, row0, ByKeys ? g : v, pass0, p.dtype, shared);
      const uint32_t kept =
          p.dropout.drop_below > 0 ? kept_weights<ByKeys>(p, head_index, row0, pass0) : ~0u;
      const C keep_scale = p.dropout.drop_below > 0 ? C(p.dropout.keep_scale) : C(1);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int64_t row = row0 + ty * 4 + i, column = pass0 + tx * 4 + j,
                        query = ByKeys ? column : row, key = ByKeys ? row : column;
          const C score = masked_score(p, s[i][j], mask_base, query, key);
          const int64_t at = head_index * p.queries + query;
          const bool visible = score != C(-INFINITY);  // then the query exists
          const C lse = !visible                        ? C(0)
                        : p.lse_dtype == DType::Float64 ? C(static_cast<const double*>(p.lse)[at])
                                                        : C(static_cast<const float*>(p.lse)[at]);
          const C weight = visible ? exponential(score - lse) : C(0),
                  delta = visible ? static_cast<const C*>(p.delta)[at] : C(0);
          const C factor = kept >> (i * 4 + j) & 1 ? keep_scale : C(0);
          d[i][j] = weight * (d[i][j] * factor - delta);
          s[i][j] = weight * factor;
        }
      accumulate_tile(sums1, d, ByKeys ? q : k, pass0, column0, p.dtype, shared);
      if (ByKeys) accumulate_tile(sums2, s, g, pass0, column0, p.dtype, shared);
    }
  }
  const C scale = C(p.scale), scales[4] = {scale, scale, scale, scale},
          ones[4] = {C(1), C(1), C(1), C(1)};
  const int64_t own_rows = ByKeys ? p.keys : p.queries;
  const HeadResult& to = ByKeys ? p.gk : p.gq;
  if (to.data)
    store_tile(to, p.dtype, sums1, scales, batch, own_head, row0, own_rows, column0, p.depth);
  if (ByKeys && p.gv.data)
    store_tile(p.gv, p.dtype, sums2, ones, batch, own_head, row0, own_rows, column0, p.value_depth);
}

dim3 grid_of(int64_t blocks, int64_t columns) {
  const int64_t chunks = ceil_div(columns, kChunks * kTile);
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(chunks > 0 ? chunks : 1));
}

template <class C>
void start_backward(const AttentionProblem& p, cudaStream_t stream) {
  const int64_t query_tiles = ceil_div(p.queries, kTile), key_tiles = ceil_div(p.keys, kTile);
  const int64_t query_blocks = p.batch * p.heads * query_tiles,
                key_blocks = p.batch * p.kv_heads * key_tiles;
  if (p.gq.data && query_blocks > 0)
    simt_backward<C, false>
        <<<grid_of(query_blocks, p.depth), kThreads, 0, stream>>>(p, query_tiles);
  if ((p.gk.data || p.gv.data) && key_blocks > 0)
    simt_backward<C, true><<<grid_of(key_blocks, p.depth > p.value_depth ? p.depth : p.value_depth),
                             kThreads, 0, stream>>>(p, key_tiles);
}

}  // namespace

void attention_simt_forward(const AttentionProblem& p, cudaStream_t stream) {
  const int64_t tiles = ceil_div(p.queries, kTile), blocks = p.batch * p.heads * tiles;
  const dim3 grid = grid_of(blocks, p.value_depth);
  if (p.dtype == DType::Float64)
    simt_forward<double><<<grid, kThreads, 0, stream>>>(p, tiles);
  else
    simt_forward<float><<<grid, kThreads, 0, stream>>>(p, tiles);
}

void attention_simt_backward(const AttentionProblem& p, cudaStream_t stream) {
  if (p.dtype == DType::Float64)
    start_backward<double>(p, stream);
  else
    start_backward<float>(p, stream);
}

}  // namespace shardwise::cuda
