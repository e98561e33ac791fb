// The GPUs of this machine. A device is made current once per thread and device change; unused
// devices get no context.
#pragma once
#include "stream.h"

namespace shardwise::cuda {

// Devices beyond it are ignored.
constexpr int32_t kMaxDevices = 64;

int32_t device_count();
// free_bytes is -1 until this process has used the device: asking would create a context on it.
Status device_info(int32_t device, DeviceInfo* info, ErrorText* error);
const DeviceFacts* device_facts(int32_t device);

Status use_device(int32_t device, ErrorText* error);
// For allocations without a device, such as pinned memory: the current device, else the last one
// used.
Status use_any_device(ErrorText* error);

#define SW_TRY(error, expression)                                          \
  do {                                                                     \
    const cudaError_t sw_code = (expression);                              \
    if (sw_code != cudaSuccess)                                            \
      return ::shardwise::cuda::cuda_failure(error, sw_code, #expression); \
  } while (0)

}  // namespace shardwise::cuda
