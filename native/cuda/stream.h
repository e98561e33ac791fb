// The stream object of the CUDA backend, which every kernel gets: the CUDA stream, device facts,
// scratch memory, the error slot for invalid indices, and the check after a launch.
//
// A kernel of the table looks like this:
//   Status name(const KernelCall& call) {
//     Stream& stream = stream_of(call);
//     name_kernel<<<grid, block, 0, stream.handle>>>(...);
//     return launched(call);
//   }
// It is called on the stream's native thread with the device already current. It must not
// synchronise, and must allocate only through Stream::workspace.
#pragma once
#include <cuda_runtime.h>

#include <atomic>

#include "../include/backend.h"

namespace shardwise::cuda {

// Written by a kernel if an index read from a tensor is out of range. In mapped pinned host memory.
struct IndexError {
  int32_t ready;  // written last
  int32_t kernel;
  int64_t value, size, position;
};

// The device side of the error slot: passed by value to kernels that check indices. Keeps the first
// report since the last read by the host; `claim` (device memory) decides which is first.
struct IndexErrorSink {
  int32_t* claim;
  IndexError* record;
  int32_t kernel;

#if defined(__CUDACC__)
  __device__ __noinline__ void report(int64_t value, int64_t size, int64_t position) const {
    if (atomicCAS(claim, 0, 1) != 0) return;
    record->kernel = kernel;
    record->value = value;
    record->size = size;
    record->position = position;
    __threadfence_system();
    *const_cast<volatile int32_t*>(&record->ready) = 1;
  }

  // Returns `value` if it is in [0, size), else reports it and returns the nearest valid index
  // (size must be > 0).
  __device__ __forceinline__ int64_t checked(int64_t value, int64_t size, int64_t position) const {
    if (static_cast<uint64_t>(value) < static_cast<uint64_t>(size)) return value;
    report(value, size, position);
    return value < 0 ? 0 : size - 1;
  }
#endif
};

// Facts about a device, read once.
struct DeviceFacts {
  int32_t num_sms = 0;
  int32_t major = 0, minor = 0;
  // with the opt-in of cudaFuncAttributeMaxDynamicSharedMemorySize
  int32_t max_shared_per_block = 0;
  int32_t max_threads_per_sm = 0;
  int64_t l2_bytes = 0;
};

// Hopper: wgmma and the tensor copy engine, in code built for sm_90a.
inline bool is_sm90(const DeviceFacts& facts) { return facts.major == 9 && facts.minor == 0; }

struct Stream {
  cudaStream_t handle = nullptr;
  int32_t device = 0;
  const DeviceFacts* facts = nullptr;

  // Scratch memory of at least `bytes` (256-byte aligned) for the running kernel call; null if
  // memory is exhausted, with `call.error` written: the kernel then returns
  // Status{Code::OutOfMemory}. One use per call: a second request within a call may free the first.
  // The contents are undefined.
  void* workspace(int64_t bytes, const KernelCall& call);

  // Device memory for kernels whose blocks count each other: `arrived` points to kArrived zeros,
  // which a kernel resets to zeros.
  static constexpr int32_t kArrived = 1024;

  IndexErrorSink index_errors(const KernelCall& call) const {
    return {claim, record_on_device, call.kernel};
  }

  // The rest is used by backend.cu only.
  Status set_scratch(int64_t bytes, ErrorText* error);  // 0 frees it
  static constexpr uint32_t kRecent = 8;
  std::atomic<int32_t> recent[kRecent] = {};  // the last launched kernels
  std::atomic<uint32_t> launches{0};          // since the device was last known to work
  ScratchSource scratch_source;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
  int32_t* claim = nullptr;
  IndexError* record = nullptr;
  IndexError* record_on_device = nullptr;
  int32_t* arrived = nullptr;
};

inline Stream& stream_of(const KernelCall& call) { return *static_cast<Stream*>(call.stream); }

// The name of kernel `id` (kernel_table.cu).
const char* kernel_name(int32_t id);

// Out of line: writes the message for a failed CUDA call (and clears the error if it can be
// cleared). OutOfMemory for cudaErrorMemoryAllocation, else Device.
Status cuda_failure(ErrorText* error, cudaError_t code, const char* what);

// After the last launch of a kernel: checks whether it started.
inline Status launched(const KernelCall& call) {
  const cudaError_t code = cudaPeekAtLastError();
  return code == cudaSuccess ? kOk : cuda_failure(call.error, code, kernel_name(call.kernel));
}

inline Status unsupported(const KernelCall& call, DType dtype) {
  return fail(call.error, Code::Unsupported, "%s has no CUDA kernel for %s",
              kernel_name(call.kernel), dtype_name(dtype));
}

// For calls in a kernel's host part that return cudaError_t (cudaMemsetAsync, cudaFuncSetAttribute
// ...).
#define SW_CUDA(expression)                                                     \
  do {                                                                          \
    const cudaError_t sw_code = (expression);                                   \
    if (sw_code != cudaSuccess)                                                 \
      return ::shardwise::cuda::cuda_failure(call.error, sw_code, #expression); \
  } while (0)

SW_HOST_DEVICE constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
SW_HOST_DEVICE constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace shardwise::cuda
