// layer_norm: y = (x - mean) rstd w + b over rows of n, and y in 16 bits; of x + residual, which it
// writes, if there is a residual. layer_norm_backward: gx, gw, gb. The kernels are in norm_forward.cu and norm_backward.cu.
#include "../../../generated/op_params.h"
#include "norm.cuh"

namespace shardwise::cuda {

Status layer_norm(const KernelCall& call) {
  const TensorView &x = call.input(0), &w = call.input(1), &b = call.input(2),
                   &residual = call.input(3);
  const NormOutputs to{call.output(0), &call.output(1), call.output(2), call.output(3)};
  const double eps = call.params_as<LayerNormParams>().eps;
  if (residual.is_immediate) return norm_forward(call, x, &w, &b, to, eps);
  return norm_of_sum(call, {x, residual, call.output(4)}, &w, &b, to, eps);
}

Status layer_norm_backward(const KernelCall& call) {
  return norm_backward(
      call, {call.input(0), call.input(1), &call.input(2), call.input(3), &call.input(4),
             &call.input(5), &call.output(0), &call.output(1), &call.output(2), call.output(3)});
}

}  // namespace shardwise::cuda
