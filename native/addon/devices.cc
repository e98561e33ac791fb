#include "devices.h"

#include <cstring>

#include "../platform/platform.h"
#include "environment.h"

namespace shardwise {

Devices& Devices::get() {
  static Devices* devices = new Devices;  // never destroyed: streams may outlive statics
  return *devices;
}

bool Devices::valid(int64_t code) {
  if (code == 0) return true;
  const Backend* found = cuda.load();
  return found && code > 0 && code < kMaxDevices && code <= found->device_count();
}

CachingAllocator* Devices::allocator(int32_t code) {
  std::atomic<CachingAllocator*>& kept = allocators[code];
  if (CachingAllocator* found = kept.load(std::memory_order_acquire)) return found;
  std::lock_guard<std::mutex> lock(mutex);
  if (!kept.load())
    kept.store(new CachingAllocator(backend(code), index(code)), std::memory_order_release);
  return kept.load();
}

// Its memory is kept for reuse until emptyCache, like that of a GPU, because returning it waits for
// every device.
CachingAllocator* Devices::pinned_allocator() {
  if (CachingAllocator* found = pinned_kept.load(std::memory_order_acquire)) return found;
  std::lock_guard<std::mutex> lock(mutex);
  if (CachingAllocator* found = pinned_kept.load()) return found;
  pinned = *cpu;
  pinned.asynchronous = true;
  pinned.alignment = 512;
  pinned.allocate = [](int32_t, int64_t bytes, void** out, ErrorText* error) {
    return get().cuda.load()->host_allocate(bytes, out, error);
  };
  pinned.release = [](int32_t, void* pointer, int64_t bytes) {
    get().cuda.load()->host_release(pointer, bytes);
  };
  pinned_kept.store(new CachingAllocator(&pinned, 0), std::memory_order_release);
  return pinned_kept.load();
}

Status find_named(Environment& state, int64_t code, DeviceCode* device) {
  if (!Devices::get().valid(code))
    return fail(error_of(state), Code::Device, "there is no such device");
  device->code = static_cast<int32_t>(code);
  return kOk;
}

Napi::Value open_backend(Environment& state, const std::string& path, const std::string& cublaslt,
                         const std::string& nccl, const std::string& nvrtc) {
  const auto refused = [&state](const char* reason) { return to_value(state.env, reason); };
  Devices& devices = Devices::get();
  std::lock_guard<std::mutex> lock(devices.mutex);  // a worker may open it at the same time
  if (devices.cuda.load()) return {};
  const char* reason = nullptr;
  void* library = platform::open_library(path.c_str(), &reason);
  if (!library) return refused(reason);
  using Entry = const Backend* (*)();
  auto entry = reinterpret_cast<Entry>(platform::find_symbol(library, "shardwise_backend_v1"));
  if (!entry) return refused("it has no symbol shardwise_backend_v1");
  const Backend* backend = entry();
  if (backend->abi != kBackendAbi) return refused("it was built for another version of the addon");
  bool same = backend->num_kernels == devices.cpu->num_kernels;
  for (int32_t i = 0; same && i < backend->num_kernels; i++)
    same = !std::strcmp(backend->kernels[i].name, devices.cpu->kernels[i].name);
  if (!same) return refused("its kernel table differs from the addon's: rebuild both");
  if (backend->device_count() <= 0) {
    DeviceInfo device;
    ErrorText error;
    backend->device_info(0, &device, &error);
    return refused(error.text[0] ? error.text : "no CUDA device was found");
  }
  backend->look_at("cuBLASLt", cublaslt.c_str());
  backend->look_at("NCCL", nccl.c_str());
  backend->look_at("NVRTC", nvrtc.c_str());
  devices.can_fuse =
      reinterpret_cast<bool (*)(int32_t)>(platform::find_symbol(library, "shardwise_can_fuse"));
  devices.cuda.store(backend);
  return {};
}

namespace {

// The symbols that return a version, by their signatures. A name from JavaScript is never called
// directly.
double version_of(const std::string& symbol, void* entry) {
  int a = 0, b = 0;
  if (symbol == "cublasLtGetVersion")
    return static_cast<double>(reinterpret_cast<size_t (*)()>(entry)());
  if (symbol == "nvrtcVersion")
    return reinterpret_cast<int (*)(int*, int*)>(entry)(&a, &b) == 0 ? a * 1000 + b * 10 : 0;
  const bool known =
      symbol == "cuDriverGetVersion" || symbol == "ncclGetVersion" || symbol == "cuptiGetVersion";
  return known && reinterpret_cast<int (*)(int*)>(entry)(&a) == 0 ? a : 0;
}

}  // namespace

// The library stays open: unloading CUDA libraries is not safe.
Napi::Value probe_library(Environment& state, const std::string& name, const std::string& symbol) {
  const Napi::Env env = state.env;
  const char* reason = nullptr;
  void* library = platform::open_library(name.c_str(), &reason);
  if (!library) return object_of(env, {{"reason", to_value(env, reason)}});
  const char* path = platform::path_of_library(library, name.c_str());
  void* entry = symbol.empty() ? nullptr : platform::find_symbol(library, symbol.c_str());
  return object_of(env, {{"path", to_value(env, path)},
                         {"version", to_value(env, entry ? version_of(symbol, entry) : 0)}});
}

int32_t device_count(const std::string& type) {
  if (type != "cuda") return 1;
  const Backend* backend = Devices::get().cuda.load();
  return backend ? backend->device_count() : 0;
}

Status device_info(Environment& state, DeviceCode device, Napi::Value* info, ErrorText* error) {
  DeviceInfo found{};
  const Status status = device.backend()->device_info(device.index(), &found, error);
  const Napi::Env env = state.env;
  if (status.ok())
    *info = object_of(env, {{"name", to_value(env, found.name)},
                            {"detail", to_value(env, found.detail)},
                            {"totalBytes", to_value(env, found.total_bytes)},
                            {"freeBytes", to_value(env, found.free_bytes)},
                            {"major", to_value(env, found.major)},
                            {"minor", to_value(env, found.minor)},
                            {"numCores", to_value(env, found.num_cores)}});
  return status;
}

bool can_fuse(DeviceCode device) {
  const auto cuda = Devices::get().can_fuse;
  return device == 0 || (cuda && cuda(device.index()));
}

int32_t tuning_version() {
  const Backend* cuda = Devices::get().cuda.load();
  return cuda && cuda->tuning ? cuda->tuning->version : 0;
}

Status load_tuning(DeviceCode device, const std::string& table, ErrorText* error) {
  const Tuning* tuning = device.backend()->tuning;
  if (!tuning) return fail(error, Code::Device, "the device has no tuning table");
  return tuning->load(device.index(), table.c_str(), error);
}

Status tuning_configurations(DeviceCode device, const std::string& product, std::string* names,
                             ErrorText* error) {
  const Tuning* tuning = device.backend()->tuning;
  if (!tuning) return fail(error, Code::Device, "the device has no tuning table");
  char text[4096] = "";
  tuning->configurations(device.index(), product.c_str(), text, sizeof text);
  *names = text;
  return kOk;
}

std::string last_tuned(DeviceCode device) {
  char text[256] = "";
  if (const Tuning* tuning = device.backend()->tuning)
    tuning->last(device.index(), text, sizeof text);
  return text;
}

}  // namespace shardwise
