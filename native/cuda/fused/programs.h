// The compiled kernels of this process. A kernel is compiled at its first launch, and kept by its
// program, layout and architecture: sizes, strides and addresses are arguments.
#pragma once
#include "../stream.h"
#include "layout.h"

namespace shardwise::cuda::fused {

// Whether kernels can be compiled for a device.
bool is_available(int32_t device);

// false: no kernel is compiled or loaded from now on. Loading one waits for all running work of the
// process (load_kernels.h), so ranks that share a process do without.
void allow(bool on);

// The kernel for a call with this layout, compiled if it is the first one.
Status find_kernel(const KernelCall& call, const Layout& layout, cudaKernel_t* out);

}  // namespace shardwise::cuda::fused
