// matmul with at most 8 rows in a and b contiguous along k (a linear layer's weight at small batch): bound by reading b once.
//
// A warp owns C neighbouring columns of b and all M rows of a; its lanes stride over k in 16-byte vectors, so that each vector
// of a is used C times from a register and each of b M times. Grid: (columns / (8 warps x C), batch). Bytes: k n + M k + M n
// elements; FLOPs 2 M n k. Also serves y with at most 8 columns, by transposing the problem.
// Technique: a warp for an output, as matrix-vector kernels have it. While the kernel before ends, each block asks L2 for the beginning of its columns, and waits.
// Numerics: float32 per lane over k / 32 products, then a fixed shuffle tree; one rounding at the end.
// One row, [14336, 4096] of bfloat16 on an H200, a call of many: 31.7 us launched plainly, 29.8 where launches overlap, 29.5 with 1 KiB of
// each column asked for (93 % of copy); 31.5, 34.2 and 40.4 with 2, 4 and 8 KiB, when L2 fetches for those who wait what others need now;
// [4096, 4096] 11.3, and 12.4 with 2.25 KiB.
#include "../primitives/overlap.cuh"
#include "../primitives/reduce.cuh"
#include "../primitives/vector.cuh"
#include "matmul_finish.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int64_t kAhead = 1024;  // bytes of b that a warp asks of L2 before its turn

template <int V, class T>
__device__ __forceinline__ Vec<T, V> load_or_zero(const T* p, int64_t at, int64_t size) {
  if (at < size) return load_vec<V>(p + at);
  Vec<T, V> zeros;
#pragma unroll
  for (int v = 0; v < V; v++) zeros[v] = from_compute<T>(0.0f);
  return zeros;
}

template <class T, int M, int C>
__global__ void __launch_bounds__(kWarps * 32) few_rows_kernel(MatmulProblem p, int32_t ahead) {
  constexpr int V = kVec16<T>;
  const int lane = threadIdx.x & 31;
  const int64_t first = (int64_t(blockIdx.x) * kWarps + (threadIdx.x >> 5)) * C;
  const int64_t batch = batch_of_block();
  if (first >= p.n || batch >= p.batch) return;
  const int rows = static_cast<int>(p.m), columns = p.n - first < C ? static_cast<int>(p.n - first) : C;
  const T *a[M], *b[C];
#pragma unroll
  for (int i = 0; i < M; i++)
    a[i] = static_cast<const T*>(p.a.data) + batch * p.a.batch_stride + (i < rows ? i : 0) * p.a.row_stride;
#pragma unroll
  for (int j = 0; j < C; j++)
    b[j] = static_cast<const T*>(p.b.data) + batch * p.b.batch_stride + (first + (j < columns ? j : 0)) * p.b.column_stride;
  let_next_kernel_start();
  if (lane < columns && ahead > 0) prefetch_to_l2(b[0] + lane * p.b.column_stride, ahead);
  wait_for_kernels_before();
  float sums[M][C];
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int j = 0; j < C; j++) sums[i][j] = 0.0f;

  // kBatch vectors of each column are in flight; those past the end are zeros.
  constexpr int kBatch = M * C >= 16 ? 1 : M * C >= 4 ? 2 : 4;
  for (int64_t start = lane * V; start < p.k; start += kBatch * 32 * V) {
    Vec<T, V> bs[kBatch][C];
#pragma unroll
    for (int u = 0; u < kBatch; u++)
#pragma unroll
      for (int j = 0; j < C; j++) bs[u][j] = load_or_zero<V>(b[j], start + u * 32 * V, p.k);
#pragma unroll
    for (int u = 0; u < kBatch; u++)
#pragma unroll
      for (int i = 0; i < M; i++) {
        const Vec<T, V> as = load_or_zero<V>(a[i], start + u * 32 * V, p.k);
#pragma unroll
        for (int j = 0; j < C; j++)
#pragma unroll
          for (int v = 0; v < V; v++) sums[i][j] += to_compute<float>(as[v]) * to_compute<float>(bs[u][j][v]);
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
  const int row = lane / C, column = lane % C;
  if (row < rows && column < columns) finish_element<T>(p, batch, row, first + column, mine);
}

template <class T, int M, int C>
void start(const MatmulProblem& p, const Stream& stream) {
  const int64_t column = p.k * item_size(p.dtype), ahead = kAhead / C;
  launch_overlapped(few_rows_kernel<T, M, C>, {batch_grid(ceil_div(p.n, kWarps * C), p.batch), kWarps * 32}, stream, p,
                    static_cast<int32_t>(column < ahead ? column : ahead));
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
  const int64_t width = 16 / item_size(p.dtype);
  return p.m <= 8 && p.k % width == 0 && p.a.column_stride == 1 && p.b.row_stride == 1 && p.a.row_stride % width == 0 &&
         p.b.column_stride % width == 0 && p.a.batch_stride % width == 0 && p.b.batch_stride % width == 0 &&
         reinterpret_cast<uintptr_t>(p.a.data) % 16 == 0 && reinterpret_cast<uintptr_t>(p.b.data) % 16 == 0;
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
