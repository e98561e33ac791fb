// rms_norm: y = x rstd w with rstd = 1 / sqrt(mean(x^2) + eps), and y in 16 bits;
// rms_norm_backward: gx, gw. Calls layer norm's kernels without mean and bias (norm_forward.cu,
// norm_backward.cu).
#include "../../../generated/op_params.h"
#include "norm.cuh"

namespace shardwise::cuda {

Status rms_norm(const KernelCall& call) {
  return norm_forward(call, call.input(0), &call.input(1), nullptr,
                      {call.output(0), nullptr, call.output(1), call.output(2)},
                      call.params_as<RmsNormParams>().eps);
}

Status rms_norm_backward(const KernelCall& call) {
  return norm_backward(
      call, {call.input(0), call.input(1), nullptr, call.input(2), &call.input(3), &call.input(4),
             &call.output(0), &call.output(1), nullptr, call.output(2)});
}

}  // namespace shardwise::cuda
