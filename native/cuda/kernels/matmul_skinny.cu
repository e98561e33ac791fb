// matmul of float16 and bfloat16 with at most 32 rows in a and b contiguous along k (a linear layer's weight at small batch):
// bound by reading b once, so b goes from memory straight into the registers of tensor-core fragments.
//
// A block owns 16 columns of y; its 8 warps divide k. A fragment's k may be in any order if both operands agree, so a lane
// reads 16 bytes of two columns of b (8 elements along k, two fragments' worth) and the same 8 of a row of a, which stays in
// the first-level cache. The next 4 KiB of a warp are under way while it multiplies: with 2 blocks an SM 128 KiB in all, about
// three times what latency times bandwidth asks for.
//   y^T[16, m] += b^T[16, k] a^T[k, m] in products of 16 x 8 x 16, one per 8 rows of a
// Grid: (columns / 16, batch). Bytes: k n + m k + m n elements; FLOPs 2 m n k. Also serves y with at most 32 columns, by
// transposing the problem.
// Numerics: float32 within a warp, then the warps in order; alpha, beta and c in float32; one rounding. The same bits each run.
#include "../primitives/mma.cuh"
#include "../primitives/vector.cuh"
#include "matmul.h"

namespace shardwise::cuda {
namespace {

constexpr int kWarps = 8, kUnroll = 4, kStep = 32 * kUnroll;

__device__ __forceinline__ uint4 load_once(const void* p, bool there) {
  uint4 v = make_uint4(0, 0, 0, 0);
  if (there)
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint4 load_cached(const void* p, bool there) {
  return there ? __ldg(static_cast<const uint4*>(p)) : make_uint4(0, 0, 0, 0);
}

template <class T, int Eights>
__global__ void __launch_bounds__(kWarps * 32, 2) skinny_kernel(MatmulProblem p) {
  __shared__ float partial[kWarps][Eights][16][9];
  const int64_t batch = batch_of_block();
  if (batch >= p.batch) return;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, group = lane >> 2, quarter = lane & 3;
  const int64_t first = int64_t(blockIdx.x) * 16;
  const T* b[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int64_t column = first + group + 8 * i;
    b[i] = static_cast<const T*>(p.b.data) + batch * p.b.batch_stride + (column < p.n ? column : p.n - 1) * p.b.column_stride;
  }
  const T* a[Eights];
#pragma unroll
  for (int i = 0; i < Eights; i++) {
    const int64_t row = group + 8 * i;
    a[i] = static_cast<const T*>(p.a.data) + batch * p.a.batch_stride + (row < p.m ? row : p.m - 1) * p.a.row_stride;
  }
  float sums[Eights][4] = {};
  uint4 next[kUnroll][2];
  const auto fetch = [&](int64_t k) {
#pragma unroll
    for (int u = 0; u < kUnroll; u++)
#pragma unroll
      for (int i = 0; i < 2; i++) next[u][i] = load_once(b[i] + k + u * 32, k + u * 32 < p.k);
  };
  const int64_t of_lane = quarter * 8;
  fetch(warp * kStep + of_lane);
  for (int64_t start = warp * kStep; start < p.k; start += kWarps * kStep) {  // the same for the whole warp
    const int64_t k = start + of_lane;
    uint4 now[kUnroll][2];
#pragma unroll
    for (int u = 0; u < kUnroll; u++) now[u][0] = next[u][0], now[u][1] = next[u][1];
    fetch(k + kWarps * kStep);
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      const uint4 x = now[u][0], y = now[u][1];
      const uint32_t even[4] = {x.x, y.x, x.y, y.y}, odd[4] = {x.z, y.z, x.w, y.w};
#pragma unroll
      for (int i = 0; i < Eights; i++) {
        const uint4 v = load_cached(a[i] + k + u * 32, k + u * 32 < p.k);
        mma_16816<T>(sums[i], even, v.x, v.y);
        mma_16816<T>(sums[i], odd, v.z, v.w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < Eights; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) partial[warp][i][group + e / 2 * 8][quarter * 2 + e % 2] = sums[i][e];
  __syncthreads();
  for (int at = threadIdx.x; at < Eights * 128; at += kWarps * 32) {
    const int column = at % 16, row = at / 16;
    if (row >= p.m || first + column >= p.n) continue;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; w++) total += partial[w][row / 8][column][row % 8];
    total *= static_cast<float>(p.alpha);
    if (p.c.data)
      total += static_cast<float>(p.beta) *
               to_compute<float>(static_cast<const T*>(
                   p.c.data)[batch * p.c.batch_stride + row * p.c.row_stride + (first + column) * p.c.column_stride]);
    static_cast<T*>(p.y.data)[batch * p.y.batch_stride + row * p.y.row_stride + (first + column) * p.y.column_stride] =
        from_compute<T>(total);
  }
}

template <class T>
void launch(const MatmulProblem& p, cudaStream_t stream) {
  const dim3 grid = batch_grid(ceil_div(p.n, 16), p.batch);
  if (p.m <= 8)
    skinny_kernel<T, 1><<<grid, kWarps * 32, 0, stream>>>(p);
  else if (p.m <= 16)
    skinny_kernel<T, 2><<<grid, kWarps * 32, 0, stream>>>(p);
  else
    skinny_kernel<T, 4><<<grid, kWarps * 32, 0, stream>>>(p);
}

bool applies(const MatmulProblem& p) {
  return p.m <= 32 && p.k % 8 == 0 && p.a.column_stride == 1 && p.b.row_stride == 1 && p.a.row_stride % 8 == 0 &&
         p.b.column_stride % 8 == 0 && p.a.batch_stride % 8 == 0 && p.b.batch_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(p.a.data) % 16 == 0 && reinterpret_cast<uintptr_t>(p.b.data) % 16 == 0;
}

}  // namespace

bool matmul_skinny(const MatmulProblem& problem, cudaStream_t stream) {
  MatmulProblem p = problem;
  if (p.dtype != DType::Float16 && p.dtype != DType::BFloat16) return false;
  for (int attempt = 0; attempt < 2; attempt++) {
    if (p.m == 1) p.a.row_stride = 0;
    if (p.n == 1) p.b.column_stride = 0;
    if (applies(p)) {
      p.dtype == DType::Float16 ? launch<half_t>(p, stream) : launch<bfloat16_t>(p, stream);
      return true;
    }
    p.a = problem.b.transposed();
    p.b = problem.a.transposed();
    p.c = problem.c.transposed();
    p.y = problem.y.transposed();
    p.m = problem.n;
    p.n = problem.m;
  }
  return false;
}

}  // namespace shardwise::cuda
