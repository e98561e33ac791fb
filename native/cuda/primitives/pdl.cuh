// Programmatic dependent launch (PDL, sm_90 and newer): a kernel starts while the previous one in
// the stream ends, which hides its launch and the last blocks of the other. Such a kernel calls
// pdl_wait() before it touches global memory. Each kernel decides when it lets the next one start;
// in a plain launch both calls have no effect.
#pragma once
#include "../stream.h"

namespace shardwise::cuda {

// Waits until the previous kernels are complete and their results visible.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Prefetches whole 16-byte words to L2, from a multiple of 16. Reads nothing, so it may precede
// pdl_wait().
__device__ __forceinline__ void prefetch_to_l2(const void* from, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// Lets the next kernel start once all blocks have called it, or ended.
__device__ __forceinline__ void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// For kernels without work before their first memory access.
__device__ __forceinline__ void pdl_begin() {
  pdl_launch_dependents();
  pdl_wait();
}

struct LaunchShape {
  dim3 blocks, threads;
  size_t shared = 0;
  int cluster = 0;  // blocks; 0: none
};

inline dim3 blocks_of(int64_t count) { return dim3(static_cast<unsigned>(count)); }

template <class... Params, class... Args>
void launch_pdl(void (*kernel)(Params...), const LaunchShape& shape, const Stream& stream,
                Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream.handle;
  cudaLaunchAttribute attributes[2] = {};
  if (stream.facts->major >= 9) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 0) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  config.attrs = attributes;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace shardwise::cuda
