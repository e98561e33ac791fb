// layer_norm: y = (x - mean) rstd w + b over rows of n, and y in 16 bits; layer_norm_backward: gx,
// gw, gb. The kernels are in norm_forward.cu and norm_backward.cu.
#include "../../../generated/op_params.h"
#include "norm.cuh"

namespace shardwise::cuda {

Status layer_norm(const KernelCall& call) {
  return norm_forward(call, call.input(0), &call.input(1), &call.input(2),
                      {call.output(0), &call.output(1), call.output(2), call.output(3)},
                      call.params_as<LayerNormParams>().eps);
}

Status layer_norm_backward(const KernelCall& call) {
  return norm_backward(
      call, {call.input(0), call.input(1), &call.input(2), call.input(3), &call.input(4),
             &call.input(5), &call.output(0), &call.output(1), &call.output(2), call.output(3)});
}

}  // namespace shardwise::cuda
