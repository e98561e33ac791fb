// attention: out = dropout(softmax(scale q k^T + mask)) v for q[B, H, S, D], k[B, Hk, T, D], v[B,
// Hk, T, Dv], and its gradient. The score matrix never exists in memory: kernels compute tiles of
// it, and the backward pass recomputes them from lse.
//
//   P = exp(scale q k^T + mask - lse), P' = P keep / (1 - p)
//   out = P' v,   delta = sum(g out) per row,   dP = (g v^T) keep / (1 - p),   dS = P (dP - delta)
//   gv = P'^T g,  gq = scale dS k,              gk = scale dS^T q
//
// This file chooses the kernel. float16 and bfloat16 with D, Dv <= 128, with no mask, a bool mask
// or one of the same dtype, run on the tensor cores: on Hopper by wgmma (attention_sm90_*.cu), else
// by mma.sync (attention_sm80_*.cu). All other problems run on the CUDA cores (attention_simt.cu).
// The backward pass is deterministic: one pass by query tiles for gq, one by key tiles for gk and
// gv (which goes over the query heads of a group in order), without atomics on results. It computes
// 7 products of S x T x D instead of 5.
// It also has the kernel of delta for the CUDA cores: a warp a row and 8 rows a block; reads g and
// out once. The tensor cores use attention_row_stats.cu.
// Numerics: float32 scores, sums and accumulators (float64 for float64). A fully masked row gives 0
// and lse -inf.
// Source: PyTorch's scaled_dot_product_attention (causal: a query does not attend to keys after its
// own index); Dao, arXiv:2307.08691. Dropout uses 16 random bits that depend on the index of the
// weight (native/README.md), so every pass draws the same ones. The kernels' files and
// docs/performance.md have measurements.
#include <cmath>

#include "../../../generated/op_params.h"
#include "attention.cuh"

namespace shardwise::cuda {
namespace {

// delta[row] = sum over columns of g out, a warp per row.
template <class C>
__global__ void __launch_bounds__(256) delta_kernel(AttentionProblem p) {
  const int64_t row = int64_t(blockIdx.x) * 8 + (threadIdx.x >> 5);
  if (row >= p.batch * p.heads * p.queries) return;
  const int64_t head_index = row / p.queries, query = row % p.queries;
  const int64_t batch = head_index / p.heads, head = head_index % p.heads;
  const int64_t g = p.g.offset(batch, head) + query * p.g.row_stride,
                y = p.y.offset(batch, head) + query * p.y.row_stride;
  C sum = C(0);
  for (int64_t d = threadIdx.x & 31; d < p.value_depth; d += 32)
    sum += load_any<C>(p.g.data, g + d * p.g.column_stride, p.dtype) *
           load_any<C>(p.y.data, y + d * p.y.column_stride, p.dtype);
  for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if ((threadIdx.x & 31) == 0) static_cast<C*>(p.delta)[row] = sum;
}

HeadView head_view(const TensorView& t) {
  if (t.is_immediate || !t.data) return {};
  return {t.data, t.strides[0], t.strides[1], t.strides[2], t.strides[3]};
}

HeadResult head_result(const TensorView& t) {
  if (t.is_immediate) return {};
  return {t.data, t.strides[0], t.strides[1], t.strides[2]};
}

template <class Params>
AttentionProblem problem_of(const Params& params, const TensorView& q, const TensorView& k,
                            const TensorView& v, const TensorView& mask) {
  AttentionProblem p;
  p.dtype = q.dtype;
  p.batch = q.sizes[0];
  p.heads = q.sizes[1];
  p.queries = q.sizes[2];
  p.depth = q.sizes[3];
  p.kv_heads = k.sizes[1];
  p.keys = k.sizes[2];
  p.value_depth = v.sizes[3];
  p.q = head_view(q);
  p.k = head_view(k);
  p.v = head_view(v);
  p.mask = head_view(mask);
  p.mask_dtype = mask.dtype;
  p.scale = params.scale;
  p.causal = params.causal != 0;
  p.dropout = WeightDropout::of(params.dropout);
  p.key = PhiloxKey(params.seed_low, params.seed_high, params.offset);
  return p;
}

// The kernels' grids count blocks in 32 bits.
bool too_large(const AttentionProblem& p) {
  const int64_t rows = p.queries > p.keys ? p.queries : p.keys;
  return p.batch * p.heads * ceil_div(rows, 64) >= (int64_t(1) << 31) || rows >= (int64_t(1) << 31);
}

void* data_of(const TensorView& t) { return t.is_immediate ? nullptr : t.data; }

}  // namespace

Status attention(const KernelCall& call) {
  const TensorView &q = call.input(0), &out = call.output(0), &lse = call.output(1);
  AttentionProblem p =
      problem_of(call.params_as<AttentionParams>(), q, call.input(1), call.input(2), call.input(3));
  if (p.batch * p.heads * p.queries == 0) return kOk;
  if (!is_floating(p.dtype)) return unsupported(call, p.dtype);
  if (too_large(p))
    return fail(call.error, Code::Unsupported, "attention over more than 2^31 tiles");
  p.out = head_result(out);
  p.lse = data_of(lse);
  p.lse_dtype = lse.dtype;
  const Stream& stream = stream_of(call);
  if (attention_sm90_forward(p, stream)) return launched(call);
  if (attention_sm80_applies(p, *stream.facts))
    attention_sm80_forward(p, stream);
  else
    attention_simt_forward(p, stream.handle);
  return launched(call);
}

Status attention_backward(const KernelCall& call) {
  const TensorView &g = call.input(0), &q = call.input(1), &out = call.input(5),
                   &lse = call.input(6);
  AttentionProblem p = problem_of(call.params_as<AttentionBackwardParams>(), q, call.input(2),
                                  call.input(3), call.input(4));
  if (!is_floating(p.dtype)) return unsupported(call, p.dtype);
  if (too_large(p))
    return fail(call.error, Code::Unsupported, "attention over more than 2^31 tiles");
  Stream& stream = stream_of(call);
  p.g = head_view(g);
  p.y = head_view(out);
  p.lse = lse.data;
  p.lse_dtype = lse.dtype;
  p.gq = head_result(call.output(0));
  p.gk = head_result(call.output(1));
  p.gv = head_result(call.output(2));
  const bool on_tensor_cores = attention_sm80_applies(p, *stream.facts),
             is_double = p.dtype == DType::Float64;
  const int64_t rows = p.batch * p.heads * p.queries;
  if (rows > 0) {
    void* const scratch = stream.workspace(
        on_tensor_cores ? attention_row_stats_bytes(p) : rows * (is_double ? 8 : 4), call);
    if (!scratch) return Status{Code::OutOfMemory};
    p.delta = scratch;
    p.row_stats = static_cast<float*>(scratch);
  }
  if (on_tensor_cores) {
    if (rows > 0) attention_row_stats(p, stream.handle);
    if (!attention_sm90_backward(p, stream)) attention_sm80_backward(p, stream);
    return launched(call);
  }
  if (rows > 0) {
    const auto kernel = is_double ? delta_kernel<double> : delta_kernel<float>;
    kernel<<<ceil_div(rows, 8), 256, 0, stream.handle>>>(p);
  }
  attention_simt_backward(p, stream.handle);
  return launched(call);
}

}  // namespace shardwise::cuda
