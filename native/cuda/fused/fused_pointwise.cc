// fused_pointwise on CUDA: not there yet, so graphs are not fused for it.
#include "../../include/fused_program.h"

namespace shardwise::cuda {

Status fused_pointwise(const KernelCall& call) {
  FusedProgram program;
  const Status status = decode(call, program);
  if (!status.ok()) return status;
  return fail(call.error, Code::Unsupported, "fused_pointwise has no CUDA kernel");
}

}  // namespace shardwise::cuda

extern "C" __attribute__((visibility("default"))) bool shardwise_can_fuse(int32_t) { return false; }
