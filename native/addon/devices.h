// The devices of the process, and the libraries behind them.
#pragma once
#include <array>
#include <atomic>
#include <mutex>

#include "../include/backend.h"
#include "../runtime/caching_allocator.h"
#include "parameter.h"

// Defined in cpu/backend.cc.
extern "C" const shardwise::Backend* shardwise_cpu_backend();

namespace shardwise {

struct GlooEngine;

// Device code 0 is the CPU, 1 + n is cuda:n.
struct Devices {
  const Backend* cpu = shardwise_cpu_backend();
  std::atomic<const Backend*> cuda{nullptr};     // set once under the mutex, read by all threads
  std::atomic<const GlooEngine*> gloo{nullptr};  // likewise
  bool (*can_fuse)(int32_t device) = nullptr;    // of the CUDA backend, set before `cuda`
  static constexpr int32_t kMaxDevices = 65;
  std::mutex mutex;
  // created on first use, never destroyed
  std::array<std::atomic<CachingAllocator*>, kMaxDevices> allocators{};
  // the CPU backend, but with memory of cuda->host_allocate
  Backend pinned{};
  std::atomic<CachingAllocator*> pinned_kept{};

  static Devices& get();
  const Backend* backend(int32_t code) const { return code == 0 ? cpu : cuda.load(); }
  static int32_t index(int32_t code) { return code == 0 ? 0 : code - 1; }
  bool valid(int64_t code);
  CachingAllocator* allocator(int32_t code);
  CachingAllocator* pinned_allocator();  // created on first use; requires cuda
};

// The code of a device that exists.
struct DeviceCode {
  int32_t code = 0;
  operator int32_t() const { return code; }
  int32_t index() const { return Devices::index(code); }
  const Backend* backend() const { return Devices::get().backend(code); }
  CachingAllocator* allocator() const { return Devices::get().allocator(code); }
};

Status find_named(Environment& state, int64_t code, DeviceCode* device);
template <>
struct Parameter<DeviceCode> : Named<DeviceCode> {};

// Called by JavaScript. The first returns nothing, or why the backend cannot be used.
Napi::Value open_backend(Environment& state, const std::string& path, const std::string& cublaslt,
                         const std::string& nccl, const std::string& nvrtc);
// Opens a library to read its version.
Napi::Value probe_library(Environment& state, const std::string& name, const std::string& symbol);
int32_t device_count(const std::string& type);
Status device_info(Environment& state, DeviceCode device, Napi::Value* info, ErrorText* error);
// Whether fused_pointwise runs on the device.
bool can_fuse(DeviceCode device);
int32_t tuning_version();
Status load_tuning(DeviceCode device, const std::string& table, ErrorText* error);
Status tuning_configurations(DeviceCode device, const std::string& product, std::string* names,
                             ErrorText* error);
std::string last_tuned(DeviceCode device);

}  // namespace shardwise
