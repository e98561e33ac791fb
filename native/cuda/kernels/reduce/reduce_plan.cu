// Plans how a reduction is distributed over the device: see reduce.cuh.
#include "reduce.cuh"

namespace shardwise::cuda::reduce {
namespace {

int32_t power_of_two_above(int64_t n, int32_t limit) {
  int32_t p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

// Whether 16-byte vectors of V elements fit along the innermost dim of `along`, with `other` as the
// second index.
bool vectors_fit(const Dims<1>& along, const Dims<1>& other, const void* data, int64_t v,
                 bool tail_allowed) {
  const int32_t inner = along.ndim - 1;
  if (inner < 0 || along.strides[0][inner] != 1 || !is_aligned(data, 16)) return false;
  if (along.sizes[inner] % v != 0 && !(tail_allowed && along.ndim == 1)) return false;
  for (int32_t d = 0; d < inner; d++)
    if (along.strides[0][d] % v != 0) return false;
  for (int32_t d = 0; d < other.ndim; d++)
    if (other.strides[0][d] % v != 0) return false;
  return true;
}

}  // namespace

void make_plan(const KernelCall& call, int32_t reduced_ndim, bool keep_order, Plan* plan) {
  const TensorView &x = call.input(0), &y = call.output(0);
  Args& args = plan->args;
  args.x = x.data;
  args.y = y.data;
  args.y2 = call.num_outputs > 1 && !call.output(1).is_immediate ? call.output(1).data : nullptr;
  args.x_dtype = x.dtype;
  args.y_dtype = y.dtype;
  args.partial = nullptr;

  Dims<1> outer, reduced;
  for (int32_t d = 0; d < x.ndim; d++)
    (d < x.ndim - reduced_ndim ? outer : reduced).push(x.sizes[d], {x.strides[d]});
  args.outer = outer.numel();
  args.reduced = reduced.numel();
  outer.collapse();
  if (!keep_order) reduced.sort_by_stride();
  reduced.collapse();

  const int64_t outer_stride = outer.ndim > 0 ? outer.strides[0][outer.ndim - 1] : 0;
  const int64_t reduced_stride = reduced.ndim > 0 ? reduced.strides[0][reduced.ndim - 1] : 0;
  plan->columns = outer.ndim > 0 &&
                  (reduced.ndim == 0 ||
                   (reduced_stride != 1 && outer_stride > 0 && outer_stride < reduced_stride));

  args.reduced_offsets = reduced.calculator<kMaxDims>();
  args.outer_offsets = outer.calculator<kMaxDims>();
  args.large = args.reduced > kMax32 && !args.reduced_offsets.identity;
  const bool fast = is_floating(x.dtype) && x.dtype != DType::Float64 && !args.large;
  const int64_t v16 = vec16(x.dtype);
  plan->vector = fast && (plan->columns ? vectors_fit(outer, reduced, x.data, v16, false)
                                        : vectors_fit(reduced, outer, x.data, v16, true));
  const int64_t v = plan->vector ? v16 : 1;

  const int64_t busy = int64_t(stream_of(call).facts->num_sms) * 4;  // blocks that fill the device
  args.splits = 1;
  args.per_split = args.reduced > 0 ? args.reduced : 1;
  int64_t per_block;  // reduced elements of a block in one unrolled step
  if (plan->columns) {
    args.threads_per_row = power_of_two_above(ceil_div(args.outer, v), 32);
    plan->blocks = static_cast<unsigned>(ceil_div(args.outer, args.threads_per_row * v));
    per_block = int64_t(kThreads / args.threads_per_row) * kUnroll;
  } else {
    const bool whole_block = args.reduced > 32 * kUnroll * v * 2 && args.outer < busy * 16;
    args.threads_per_row =
        whole_block ? kThreads : power_of_two_above(ceil_div(args.reduced, v), 32);
    plan->blocks = static_cast<unsigned>(ceil_div(args.outer, kThreads / args.threads_per_row));
    per_block = kThreads * kUnroll * v;
    if (!whole_block) per_block = INT64_MAX / 4;
  }
  if (plan->blocks < busy && args.reduced >= 4 * per_block) {
    const int64_t even = plan->columns ? 0 : args.reduced / (kLongSplit * per_block),
                  enough = ceil_div(busy, plan->blocks);
    int64_t splits = even > enough ? even : enough;
    const int64_t most = args.reduced / (2 * per_block);
    splits = splits < most ? splits : most;
    splits = splits < kMaxSplits ? splits : kMaxSplits;
    args.per_split = round_up(ceil_div(args.reduced, splits), per_block);
    args.splits = ceil_div(args.reduced, args.per_split);
  }
}

}  // namespace shardwise::cuda::reduce
