// cp.async: 16 bytes from global to shared memory without passing through registers (sm_80 and
// later).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace shardwise::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Copies the first `bytes` (0 to 16) and fills the rest of the 16 with zeros. Both addresses are
// 16-byte aligned.
__device__ __forceinline__ void copy_async(void* to, const void* from, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most Pending of this thread's committed groups are unfinished.
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Lets a kernel use `bytes` of dynamic shared memory on the current device. `whole` gives as much
// of the SM's memory as possible to shared memory instead of L1: by default the driver may leave
// less than the blocks that fit otherwise need. Asks the driver once per thread, kernel and device.
// launched() reports an error.
template <class K>
inline void allow_shared(K* kernel, size_t bytes, bool whole = false) {
  // the default limit of a kernel, minus space for its static shared memory
  constexpr size_t kAlways = 40 * 1024;
  if (bytes <= kAlways && !whole) return;
  struct Known {
    const void* kernel;
    int device;
    size_t bytes;
  };
  static thread_local Known known[32] = {};  // per kernel signature
  const void* const address = reinterpret_cast<const void*>(kernel);
  int device = 0;
  cudaGetDevice(&device);
  Known& slot = known[(reinterpret_cast<uintptr_t>(address) >> 4) % 32];
  if (slot.kernel == address && slot.device == device && slot.bytes >= bytes) return;
  if (bytes > kAlways)
    cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
  if (whole)
    cudaFuncSetAttribute(address, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
  slot = {address, device, bytes};
}

}  // namespace shardwise::cuda
