// matmul with at most 8 rows in a and b contiguous along k (a linear layer's weight at small
// batch): reading b once is the limit.
//
// A thread group owns C neighbouring columns of b and all M rows of a. Its threads stride over k in
// 16-byte vectors, so that each vector of a is used C times from a register and each of b M times.
// Long columns (8 KB and more) have a block as group, short ones a warp. Also serves y with at most
// 8 columns, by transposing the problem.
// Grid: (columns / (groups of a block x C), batch). Bytes: k n + M k + M n elements; FLOPs 2 M n k.
// Numerics: float32 per thread over its products, then a fixed shuffle tree, and warps in order;
// one rounding at the end.
// Technique: a warp or a block for an output, as in matrix-vector kernels. While the previous
// kernel ends, each group prefetches the beginning of its columns to L2, and waits.
// On an H200, one row of bfloat16, a call of many, us: [14336, 4096] 28.1 (98 % of copy), [4096,
// 4096] 9.5. Versions: a warp for a column 29.9 and 11.2, a block for a column 32.1, for two 30.2,
// elements converted one by one 28.9; alone, with fixed strides, 27.3 and 9.0. A block needs long
// columns: [8192, 2048] 10.5, by blocks 13.0 to 18.2. Without PDL 2 us more. 2, 4 and 8 rows of
// float32, [4096, 4096], without PDL: 20.7, 24.6, 35.9 us, by a warp for a column or more 26.5,
// 34.5, 121; of bfloat16 13.5, 16.2, 23.7 and 14.3, 16.0, 23.6.
#include "../../primitives/packed.cuh"
#include "../../primitives/pdl.cuh"
#include "../../primitives/reduce.cuh"
#include "../../primitives/vector.cuh"
#include "matmul.h"

namespace shardwise::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int64_t kLongColumn = 8192;  // bytes
// fewer columns get a block each: 1000 of 8192 elements 6.1 us, four at a time 6.9
constexpr int64_t kFewColumns = 2048;
// bytes of b that a warp prefetches to L2; a block four times as many
constexpr int64_t kAhead = 1024;

template <class T>
__device__ __forceinline__ uint4 load_or_zero(const T* p, int64_t at, int64_t size) {
  return at < size ? *reinterpret_cast<const uint4*>(p + at) : make_uint4(0, 0, 0, 0);
}

template <class T, int M, int C, int Group>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(MatmulProblem p, int32_t ahead) {
  constexpr int V = kVec16<T>;
  const int member = threadIdx.x % Group, lane = threadIdx.x & 31;
  const int64_t first = (int64_t(blockIdx.x) * (kThreads / Group) + threadIdx.x / Group) * C;
  const int64_t batch = batch_of_block();
  if (first >= p.n || batch >= p.batch) return;
  const int rows = static_cast<int>(p.m),
            columns = p.n - first < C ? static_cast<int>(p.n - first) : C;
  const T *a[M], *b[C];
#pragma unroll
  for (int i = 0; i < M; i++)
    a[i] = static_cast<const T*>(p.a.data) + batch * p.a.batch_stride +
           (i < rows ? i : 0) * p.a.row_stride;
#pragma unroll
  for (int j = 0; j < C; j++)
    b[j] = static_cast<const T*>(p.b.data) + batch * p.b.batch_stride +
           (first + (j < columns ? j : 0)) * p.b.column_stride;
  pdl_launch_dependents();
  if (member < columns && ahead > 0) prefetch_to_l2(b[0] + member * p.b.column_stride, ahead);
  pdl_wait();
  float sums[M][C];
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int j = 0; j < C; j++) sums[i][j] = 0.0f;

  // kBatch vectors of each column are in flight; those past the end are zeros.
  constexpr int kBatch = M * C >= 16 ? 1 : M * C >= 4 || Group > 32 ? 2 : 4;
  for (int64_t start = member * V; start < p.k; start += kBatch * Group * V) {
    uint4 bs[kBatch][C];
#pragma unroll
    for (int u = 0; u < kBatch; u++)
#pragma unroll
      for (int j = 0; j < C; j++) bs[u][j] = load_or_zero(b[j], start + u * Group * V, p.k);
#pragma unroll
    for (int u = 0; u < kBatch; u++)
#pragma unroll
      for (int i = 0; i < M; i++) {
        float x[V], w[V];
        unpack<T>(load_or_zero(a[i], start + u * Group * V, p.k), x);
#pragma unroll
        for (int j = 0; j < C; j++) {
          unpack<T>(bs[u][j], w);
#pragma unroll
          for (int v = 0; v < V; v++) sums[i][j] += x[v] * w[v];
        }
      }
  }
  float mine = 0.0f;
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int j = 0; j < C; j++) {
      const float total = warp_reduce(sums[i][j], SumOp{});
      if (lane == i * C + j) mine = total;
    }
  if constexpr (Group > 32) {
    __shared__ float partials[kWarps][32];
    partials[threadIdx.x >> 5][lane] = mine;
    __syncthreads();
    if (threadIdx.x >= M * C) return;
    mine = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; w++) mine += partials[w][lane];
  }
  const int row = lane / C, column = lane % C;
  if (row < rows && column < columns) finish_element<T>(p, batch, row, first + column, mine);
}

template <class T, int M, int C, int Group>
void launch_groups(const MatmulProblem& p, const Stream& stream) {
  const int64_t column = p.k * item_size(p.dtype), ahead = (Group > 32 ? 4 : 1) * kAhead / C;
  launch_pdl(few_rows_kernel<T, M, C, Group>,
             {batch_grid(ceil_div(p.n, kThreads / Group * C), p.batch), kThreads}, stream, p,
             static_cast<int32_t>(column < ahead ? column : ahead));
}

// C: columns of a warp.
template <class T, int M, int C>
void start(const MatmulProblem& p, const Stream& stream) {
  if (p.k * item_size(p.dtype) < kLongColumn) return launch_groups<T, M, C, 32>(p, stream);
  if constexpr (M == 1) {
    if (p.n < kFewColumns) return launch_groups<T, 1, 1, kThreads>(p, stream);
  }
  launch_groups<T, M, 4, kThreads>(p, stream);
}

template <class T>
void start_for(const MatmulProblem& p, const Stream& stream) {
  if (p.m == 1)
    start<T, 1, 1>(p, stream);
  else if (p.m == 2)
    start<T, 2, 2>(p, stream);
  else if (p.m <= 4)
    start<T, 4, 2>(p, stream);
  else
    start<T, 8, 4>(p, stream);
}

bool applies(const MatmulProblem& p) {
  const int64_t width = vec16(p.dtype);
  return p.m <= 8 && p.k % width == 0 && p.a.column_stride == 1 && p.b.row_stride == 1 &&
         p.a.row_stride % width == 0 && p.b.column_stride % width == 0 &&
         p.a.batch_stride % width == 0 && p.b.batch_stride % width == 0 &&
         reinterpret_cast<uintptr_t>(p.a.data) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(p.b.data) % 16 == 0;
}

}  // namespace

bool matmul_few_rows(const MatmulProblem& problem, const Stream& stream) {
  MatmulProblem p = problem;
  if (p.dtype == DType::Float64) return false;
  if (p.m == 1) p.a.row_stride = 0;
  if (p.n == 1) p.b.column_stride = 0;
  if (!applies(p)) {
    p = problem.transposed();
    if (p.m == 1) p.a.row_stride = 0;
    if (p.n == 1) p.b.column_stride = 0;
    if (!applies(p)) return false;
  }
  switch (p.dtype) {
    case DType::Float16:
      start_for<half_t>(p, stream);
      return true;
    case DType::BFloat16:
      start_for<bfloat16_t>(p, stream);
      return true;
    default:
      start_for<float>(p, stream);
      return true;
  }
}

}  // namespace shardwise::cuda
