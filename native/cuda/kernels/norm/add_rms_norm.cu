// add_rms_norm: h = x + residual, rounded, and y = h rstd w with rstd = 1 / sqrt(mean(h^2) + eps),
// and y in 16 bits. Its gradient is rms_norm_backward of h, with that of h as `more`.
//
// Rows of whole aligned vectors take one pass (norm_vectors_forward.cu): x, residual, h and y once,
// where a sum and a norm move 5 of these. All others use a separate kernel for the sum (256 threads
// a block, at most 8 blocks an SM, an element at a time) before the norm.
// Operations: by the formulas 5 an element (two sums, a square, two products).
// Numerics: float32 (float64 for float64); h is rounded before it is normalised. Fixed order of
// summation, no atomics.
// Source: Zhang and Sennrich, arXiv:1910.07467; PyTorch's rms_norm of x + residual. bf16 16384 x
// 4096 on one H200 (PyTorch with max-autotune): 131 us (133), backward 133 (150): 96 and 95 % of
// copy. In an earlier run with evict-first hints for L2: 136.1 and 134.5, backward without `more`
// 111.3 (85 %).
#include "../../../generated/op_params.h"
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

template <class T, class U>
__global__ void __launch_bounds__(256) add_elements(const T* a, const U* b, T* out, int64_t n) {
  using C = compute_t<T>;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += int64_t(gridDim.x) * blockDim.x)
    out[i] = from_compute<T>(to_compute<C>(a[i]) + to_compute<C>(b[i]));
}

template <class T, class Low>
__global__ void __launch_bounds__(256) round_elements(const T* from, Low* low, int64_t n) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += int64_t(gridDim.x) * blockDim.x)
    low[i] = from_compute<Low>(to_compute<compute_t<T>>(from[i]));
}

unsigned blocks_for(const KernelCall& call, int64_t n) {
  const int64_t most = int64_t(stream_of(call).facts->num_sms) * 8, needed = ceil_div(n, 256);
  return static_cast<unsigned>(needed < most ? needed : most);
}

}  // namespace

Status add_contiguous(const KernelCall& call, const void* a, const void* b, void* out, DType dtype,
                      int64_t n) {
  if (n == 0) return kOk;
  const bool found = dispatch_floating(dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    add_elements<T><<<blocks_for(call, n), 256, 0, stream_of(call).handle>>>(
        static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), n);
  });
  return found ? launched(call) : unsupported(call, dtype);
}

Status round_contiguous(const KernelCall& call, const void* from, DType dtype, const LowRows& low,
                        int64_t n) {
  if (n == 0) return kOk;
  const bool found = dispatch_floating(dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    const auto launch = [&](auto* to) {
      round_elements<<<blocks_for(call, n), 256, 0, stream_of(call).handle>>>(
          static_cast<const T*>(from), to, n);
    };
    low.half ? launch(static_cast<half_t*>(low.data)) : launch(static_cast<bfloat16_t*>(low.data));
  });
  return found ? launched(call) : unsupported(call, dtype);
}

namespace {

Status add_low(const KernelCall& call, const NormSum& rows) {
  const auto launch = [&](auto* residual) {
    add_elements<<<blocks_for(call, rows.x.numel), 256, 0, stream_of(call).handle>>>(
        static_cast<const float*>(rows.x.data), residual, static_cast<float*>(rows.sum.data),
        rows.x.numel);
  };
  if (rows.x.dtype != DType::Float32 || !is_low(rows.residual.dtype))
    return unsupported(call, rows.residual.dtype);
  rows.residual.dtype == DType::Float16
      ? launch(static_cast<const half_t*>(rows.residual.data))
      : launch(static_cast<const bfloat16_t*>(rows.residual.data));
  return launched(call);
}

}  // namespace

Status norm_of_sum(const KernelCall& call, const NormSum& rows, const TensorView* w,
                   const TensorView* b, const NormOutputs& to, double eps) {
  const auto& [x, residual, sum] = rows;
  if (x.numel == 0) return kOk;
  if (x.sizes[0] >= (int64_t(1) << 31))
    return fail(call.error, Code::Unsupported, "a norm of 2^31 rows or more");
  if (norm_forward_of_sum(call, rows, w, b, to, eps)) return launched(call);
  const Status added = x.dtype == residual.dtype
                           ? add_contiguous(call, x.data, residual.data, sum.data, x.dtype, x.numel)
                           : add_low(call, rows);
  return added.ok() ? norm_forward(call, sum, w, b, to, eps) : added;
}

Status add_rms_norm(const KernelCall& call) {
  const NormOutputs to{call.output(0), nullptr, call.output(2), call.output(3)};
  return norm_of_sum(call, {call.input(0), call.input(1), call.output(1)}, &call.input(2), nullptr,
                     to, call.params_as<AddRmsNormParams>().eps);
}

}  // namespace shardwise::cuda
