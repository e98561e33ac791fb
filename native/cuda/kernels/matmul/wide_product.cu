// wide_product: y[1, m, n] = a b + c with a and b of 16 bits, c and y of float32.
//
// cuBLASLt computes it in one kernel. Without it a kernel of matmul.cu writes the product in 16
// bits into the first half of each row of y, and widen_rows spreads it over the row: a block per
// row, from the last elements to the first, so that no element is overwritten before it is read.
// Bytes of widen_rows: 2 + 4 an element, 4 more with c. Numerics: float32 sums; one rounding to 16
// bits without cuBLASLt.
// Source: the gradient of a converted operand, as PyTorch's autocast computes it in two ops.
#include "../../primitives/dtype.cuh"
#include "../../primitives/vector.cuh"
#include "matmul.h"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256, kEach = 4;

template <class T>
__global__ void __launch_bounds__(kThreads)
    widen_rows(float* y, int64_t row_stride, MatrixView c, int64_t n) {
  const int64_t row = blockIdx.x;
  float* to = y + row * row_stride;
  const T* from = reinterpret_cast<const T*>(to);
  constexpr int64_t kChunk = kThreads * kEach;
  for (int64_t first = (n - 1) / kChunk * kChunk; first >= 0; first -= kChunk) {
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int64_t at = first + i * kThreads + threadIdx.x;
      values[i] = at < n ? to_compute<float>(from[at]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int64_t at = first + i * kThreads + threadIdx.x;
      if (at >= n) continue;
      if (c.data)
        values[i] += static_cast<const float*>(c.data)[row * c.row_stride + at * c.column_stride];
      to[at] = values[i];
    }
  }
}

Status in_two_steps(const MatmulProblem& p, Stream& stream, const KernelCall& call) {
  MatmulProblem narrow = p;
  narrow.wide = false;
  narrow.c = {};
  narrow.beta = 0;
  narrow.y.row_stride = 2 * p.y.row_stride;
  const Status status = run_matmul(narrow, stream, call);
  if (!status.ok()) return status;
  const auto rows = static_cast<unsigned>(p.m);
  float* y = static_cast<float*>(p.y.data);
  if (p.dtype == DType::BFloat16)
    widen_rows<bfloat16_t><<<rows, kThreads, 0, stream.handle>>>(y, p.y.row_stride, p.c, p.n);
  else
    widen_rows<half_t><<<rows, kThreads, 0, stream.handle>>>(y, p.y.row_stride, p.c, p.n);
  return launched(call);
}

}  // namespace

Status wide_product(const KernelCall& call) {
  const TensorView &a = call.input(0), &b = call.input(1), &c = call.input(2), &y = call.output(0);
  if (y.numel == 0) return kOk;
  if (item_size(a.dtype) != 2 || !is_floating(a.dtype)) return unsupported(call, a.dtype);
  MatmulProblem p;
  p.dtype = a.dtype;
  p.wide = true;
  p.m = y.sizes[1];
  p.n = y.sizes[2];
  p.k = a.sizes[2];
  p.a = view_of(a);
  p.b = view_of(b);
  p.y = view_of(y);
  if (!c.is_immediate && c.data) {
    p.c = view_of(c);
    p.beta = 1;
  }
  if (p.m >= (int64_t(1) << 31))
    return fail(call.error, Code::Unsupported, "a product of 2^31 rows or more");
  Stream& stream = stream_of(call);
  Status status = kOk;
  if (p.k > 0 && matmul_route() != MatmulRoute::Own)
    switch (matmul_library(p, 0, nullptr, stream, call, &status)) {
      case lt::Outcome::Done:
        return launched(call);
      case lt::Outcome::Failed:
        return status;
      case lt::Outcome::Declined:
        break;
    }
  return in_two_steps(p, stream, call);
}

}  // namespace shardwise::cuda
