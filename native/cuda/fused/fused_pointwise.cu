// fused_pointwise: runs a program of pointwise steps as one kernel that is compiled at run time.
//
// Math: that of the pointwise ops one by one, with each result rounded to its dtype, bit for bit.
// A thread computes 16 bytes of the widest output, or 4 elements 256 apart if operands do not allow
// vectors (layout.h). Grid: a block of 256 threads for each 256 vectors. Bytes: every operand once.
// Nothing depends on another element: the same bits in every run.
#include "programs.h"
#include "source.h"
#include "space.h"

namespace shardwise::cuda {
namespace {

Status launch(const KernelCall& call, cudaKernel_t kernel, const fused::Layout& layout,
              const fused::Space& space) {
  if (!fused::fits_one_launch(layout, space)) {
    fused::Space first, second;
    fused::halve(call, layout, space, &first, &second);
    const Status status = launch(call, kernel, layout, first);
    return status.ok() ? launch(call, kernel, layout, second) : status;
  }
  fused::Arguments arguments;
  arguments.fill(call, layout, space);
  const Stream& stream = stream_of(call);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(arguments.num_blocks()));
  config.blockDim = dim3(fused::kThreads);
  config.stream = stream.handle;
  cudaLaunchAttribute attribute = {};
  if (stream.facts->major >= 9) {  // as launch_pdl of primitives/pdl.cuh
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  void* parameters[] = {arguments.data()};
  SW_CUDA(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), parameters));
  return kOk;
}

}  // namespace

Status fused_pointwise(const KernelCall& call) {
  const Status status = ::shardwise::fused::check_operands(call);
  if (!status.ok()) return status;
  if (call.output(0).numel == 0) return kOk;
  fused::Space space;
  const fused::Layout layout = fused::lay_out(call, fused::widest_vector(call), &space);
  cudaKernel_t kernel = nullptr;
  const Status found = fused::find_kernel(call, layout, &kernel);
  return found.ok() ? launch(call, kernel, layout, space) : found;
}

}  // namespace shardwise::cuda

extern "C" __attribute__((visibility("default"))) bool shardwise_can_fuse(int32_t device) {
  return shardwise::cuda::fused::is_available(device);
}
