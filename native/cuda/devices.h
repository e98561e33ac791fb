// The GPUs of this machine. A device is made current once per thread and device change; devices
// that nobody uses get no context.
#pragma once
#include "stream.h"

namespace shardwise::cuda {

// Further ones are not seen.
constexpr int32_t kMaxDevices = 64;

int32_t device_count();
// free_bytes is -1 as long as this process has not used the device: asking would create a context
// on it.
Status device_info(int32_t device, DeviceInfo* info, ErrorText* error);
const DeviceFacts* device_facts(int32_t device);

Status use_device(int32_t device, ErrorText* error);
// For what belongs to no device, such as pinned memory: the one that is current, else the last that
// was used.
Status use_any_device(ErrorText* error);

#define SW_TRY(error, expression)                                          \
  do {                                                                     \
    const cudaError_t sw_code = (expression);                              \
    if (sw_code != cudaSuccess)                                            \
      return ::shardwise::cuda::cuda_failure(error, sw_code, #expression); \
  } while (0)

}  // namespace shardwise::cuda
