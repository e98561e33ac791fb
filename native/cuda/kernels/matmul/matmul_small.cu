// matmul of a few elements: one thread an element of y, straight from global memory. Latency
// dominates such a product, so the kernel uses neither shared memory nor a barrier, and its
// parameters are few bytes. Math: matmul.cu. For m, n <= 64 with m n <= 1024, k <= 32, batches of
// up to 1024.
// Grid: (m n / 128, batch), blocks of 128 threads. FLOPs 2 m n k per batch.
// Bytes: a thread reads a row of a and a column of b, 2 k elements, which neighbours read too.
// Numerics: as matmul_simt.cu, sums in order of k in the compute type, one rounding. The same bits
// in every run.
// Source: written for this library. On one H200, mm of 8 x 8, whole calls one after another: 3.05
// to 3.55 us (PyTorch 7.0 to 8.3), a raw launch 2.7 to 3.0.
// Versions: by matmul_simt.cu, when a launch also took the host longer, 5.2 and 4.2 us in two runs
// (PyTorch 9.8 and 8.3).
#include "../../primitives/dtype.cuh"
#include "matmul.h"

namespace shardwise::cuda {
namespace {

struct SmallMatrix {
  const void* data;
  int32_t batch_stride, row_stride, column_stride;
};

struct SmallProblem {
  SmallMatrix a, b, c;
  void* y;
  int32_t m, n, k, y_batch_stride, y_row_stride, y_column_stride;
  double alpha, beta;
};

template <class T>
__global__ void __launch_bounds__(128) small_kernel(SmallProblem p) {
  using C = compute_t<T>;
  const int32_t i = blockIdx.x * 128 + threadIdx.x;
  if (i >= p.m * p.n) return;
  const int32_t row = i / p.n, column = i % p.n;
  const int64_t batch = blockIdx.y;
  const T* a = static_cast<const T*>(p.a.data) + batch * p.a.batch_stride + row * p.a.row_stride;
  const T* b =
      static_cast<const T*>(p.b.data) + batch * p.b.batch_stride + column * p.b.column_stride;
  C sum = C(0);
#pragma unroll 8
  for (int32_t k = 0; k < p.k; k++)
    sum += to_compute<C>(a[k * p.a.column_stride]) * to_compute<C>(b[k * p.b.row_stride]);
  C value = sum * static_cast<C>(p.alpha);
  if (p.c.data) {
    const T* c = static_cast<const T*>(p.c.data) + batch * p.c.batch_stride;
    value += static_cast<C>(p.beta) *
             to_compute<C>(c[row * p.c.row_stride + column * p.c.column_stride]);
  }
  T* y = static_cast<T*>(p.y) + batch * p.y_batch_stride;
  y[row * p.y_row_stride + column * p.y_column_stride] = from_compute<T>(value);
}

bool narrow(const MatrixView& v, SmallMatrix* out) {
  constexpr int64_t limit = 1 << 24;
  if (v.batch_stride > limit || v.row_stride > limit || v.column_stride > limit) return false;
  *out = {v.data, static_cast<int32_t>(v.batch_stride), static_cast<int32_t>(v.row_stride),
          static_cast<int32_t>(v.column_stride)};
  return true;
}

}  // namespace

bool matmul_small(const MatmulProblem& p, cudaStream_t stream) {
  if (p.m > 64 || p.n > 64 || p.m * p.n > 1024 || p.k > 32 || p.batch > 1024) return false;
  SmallProblem s;
  SmallMatrix y;
  if (!narrow(p.a, &s.a) || !narrow(p.b, &s.b) || !narrow(p.c, &s.c) || !narrow(p.y, &y))
    return false;
  s.y = p.y.data;
  s.m = static_cast<int32_t>(p.m);
  s.n = static_cast<int32_t>(p.n);
  s.k = static_cast<int32_t>(p.k);
  s.y_batch_stride = y.batch_stride;
  s.y_row_stride = y.row_stride;
  s.y_column_stride = y.column_stride;
  s.alpha = p.alpha;
  s.beta = p.beta;
  const dim3 grid(static_cast<uint32_t>(ceil_div(p.m * p.n, 128)), static_cast<uint32_t>(p.batch));
  dispatch_floating(
      p.dtype, [&](auto tag) { small_kernel<tag_t<decltype(tag)>><<<grid, 128, 0, stream>>>(s); });
  return true;
}

}  // namespace shardwise::cuda
