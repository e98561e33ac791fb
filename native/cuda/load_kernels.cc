#include "load_kernels.h"

#include <mutex>
#include <vector>

#include "cublaslt.h"
#include "devices.h"
#include "fused/programs.h"

namespace shardwise::cuda {
namespace {

// The host handles of all kernels. A function-local static, because kernels register before the
// constructors of this file run.
std::vector<const char*>& kernels() {
  static auto* list = new std::vector<const char*>;
  return *list;
}

}  // namespace

Status load_kernels(int32_t device, ErrorText* error) {
  static std::mutex mutex;
  static bool loaded[kMaxDevices] = {};
  std::lock_guard<std::mutex> lock(mutex);
  const Status status = use_device(device, error);
  if (!status.ok()) return status;
  lt::allow(false);
  fused::allow(false);
  if (loaded[device]) return kOk;
  for (const char* kernel : kernels()) {
    cudaFuncAttributes ignored;
    const cudaError_t code = cudaFuncGetAttributes(&ignored, kernel);
    if (code == cudaErrorInvalidDeviceFunction || code == cudaErrorNoKernelImageForDevice) {
      cudaGetLastError();  // for another architecture
      continue;
    }
    SW_TRY(error, code);
  }
  loaded[device] = true;
  return kOk;
}

}  // namespace shardwise::cuda

// The compiler registers each kernel with the runtime when the library is opened. The linker
// redirects those calls to this wrapper (--wrap): no other list of all kernels exists.
extern "C" {
void __real___cudaRegisterFunction(void** library, const char* kernel, char* name,
                                   const char* device_name, int limit, uint3* thread, uint3* block,
                                   dim3* threads, dim3* blocks, int* warp);
void __wrap___cudaRegisterFunction(void** library, const char* kernel, char* name,
                                   const char* device_name, int limit, uint3* thread, uint3* block,
                                   dim3* threads, dim3* blocks, int* warp) {
  shardwise::cuda::kernels().push_back(kernel);
  __real___cudaRegisterFunction(library, kernel, name, device_name, limit, thread, block, threads,
                                blocks, warp);
}
}
