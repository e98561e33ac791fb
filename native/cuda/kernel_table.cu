// The table of kernels, by id. Every name of generated/kernel_table.def is a function of this
// namespace; a missing one is a link error.
#include "stream.h"

namespace shardwise::cuda {

#define SW_KERNEL(id, name) Status name(const KernelCall& call);
#include "../generated/kernel_table.def"
#undef SW_KERNEL

extern const KernelEntry kKernels[] = {
#define SW_KERNEL(id, name) {#name, name},
#include "../generated/kernel_table.def"
#undef SW_KERNEL
};

extern const int32_t kNumKernels = sizeof kKernels / sizeof kKernels[0];

const char* kernel_name(int32_t id) {
  return id >= 0 && id < kNumKernels ? kKernels[id].name : "?";
}

}  // namespace shardwise::cuda
