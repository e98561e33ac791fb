#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "devices.h"

namespace shardwise::cuda {

namespace {

struct Devices {
  int32_t count = 0;
  char reason[256] = {0};  // why there is no device
};

const Devices& devices() {
  static const Devices found = [] {
    Devices d;
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count > 0) {
      d.count = count < kMaxDevices ? count : kMaxDevices;
      return d;
    }
    cudaGetLastError();
    int driver = 0;
    if (code == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
        driver > 0) {
      snprintf(d.reason, sizeof d.reason,
               "the NVIDIA driver is too old: it supports CUDA %d.%d, this build needs %d.%d",
               driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
               CUDART_VERSION % 1000 / 10);
    } else if (code == cudaErrorInsufficientDriver) {
      snprintf(d.reason, sizeof d.reason, "no NVIDIA driver was found");
    } else {
      snprintf(d.reason, sizeof d.reason, "no CUDA device: %s",
               code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code));
    }
    return d;
  }();
  return found;
}

// SHARDWISE_CUDA_CAPABILITY=8.0: the choice of kernels, and their shared memory, are as on an older
// GPU.
void lower_capability(DeviceFacts* facts) {
  const char* asked = std::getenv("SHARDWISE_CUDA_CAPABILITY");
  int major = 0, minor = 0;
  if (!asked || sscanf(asked, "%d.%d", &major, &minor) != 2 || major < 8) return;
  if (major * 10 + minor >= facts->major * 10 + facts->minor) return;
  facts->major = major;
  facts->minor = minor;
  const int32_t shared = major == 8 && minor == 0 ? 163 << 10 : 99 << 10;
  if (major == 8 && facts->max_shared_per_block > shared) facts->max_shared_per_block = shared;
}

thread_local int32_t current_device = -1;
std::atomic<int32_t> last_device{0};
std::atomic<bool> has_context[kMaxDevices];

// Without GPUs the error has the reason, which is the same for every index.
Status require_device(int32_t device, ErrorText* error) {
  if (devices().count == 0) return fail(error, Code::Device, "%s", devices().reason);
  if (device >= 0 && device < devices().count) return kOk;
  return fail(error, Code::Device, "cuda:%d does not exist: the index is out of range", device);
}

}  // namespace

Status use_device(int32_t device, ErrorText* error) {
  if (device == current_device) return kOk;
  if (const Status status = require_device(device, error); !status.ok()) return status;
  SW_TRY(error, cudaSetDevice(device));
  current_device = device;
  last_device.store(device, std::memory_order_relaxed);
  has_context[device].store(true, std::memory_order_relaxed);
  return kOk;
}

Status use_any_device(ErrorText* error) {
  return current_device >= 0 ? kOk : use_device(last_device.load(std::memory_order_relaxed), error);
}

const DeviceFacts* device_facts(int32_t device) {
  static DeviceFacts facts[kMaxDevices];
  static std::once_flag once[kMaxDevices];
  std::call_once(once[device], [device] {
    const auto read = [device](cudaDeviceAttr attribute) {
      int value = 0;
      cudaDeviceGetAttribute(&value, attribute, device);
      return value;
    };
    DeviceFacts& f = facts[device];
    f.num_sms = read(cudaDevAttrMultiProcessorCount);
    f.major = read(cudaDevAttrComputeCapabilityMajor);
    f.minor = read(cudaDevAttrComputeCapabilityMinor);
    f.max_shared_per_block = read(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    f.max_threads_per_sm = read(cudaDevAttrMaxThreadsPerMultiProcessor);
    f.l2_bytes = read(cudaDevAttrL2CacheSize);
    lower_capability(&f);
  });
  return &facts[device];
}

int32_t device_count() { return devices().count; }

Status device_info(int32_t device, DeviceInfo* info, ErrorText* error) {
  if (const Status status = require_device(device, error); !status.ok()) return status;
  cudaDeviceProp properties;
  SW_TRY(error, cudaGetDeviceProperties(&properties, device));
  int driver = 0;
  cudaDriverGetVersion(&driver);
  memset(info, 0, sizeof *info);
  snprintf(info->name, sizeof info->name, "%.127s", properties.name);
  snprintf(info->detail, sizeof info->detail,
           "compute capability %d.%d, driver for CUDA %d.%d, built with %d.%d, %.0f MiB of L2",
           properties.major, properties.minor, driver / 1000, driver % 1000 / 10,
           CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, properties.l2CacheSize / 1048576.0);
  info->total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info->free_bytes = -1;
  info->major = properties.major;
  info->minor = properties.minor;
  info->num_cores = properties.multiProcessorCount;
  if (has_context[device].load(std::memory_order_relaxed)) {
    const Status status = use_device(device, error);
    if (!status.ok()) return status;
    size_t free_bytes = 0, total_bytes = 0;
    SW_TRY(error, cudaMemGetInfo(&free_bytes, &total_bytes));
    info->free_bytes = static_cast<int64_t>(free_bytes);
  }
  return kOk;
}

}  // namespace shardwise::cuda
