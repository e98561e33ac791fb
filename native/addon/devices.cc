// Devices, backends and libraries: which exist, and why others do not. Memory statistics.
#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string>

#include "environment.h"

namespace shardwise {

namespace {

void set_number(napi_env env, napi_value object, const char* key, double value) {
  set_property(env, object, key, number_value(env, value));
}

void set_text(napi_env env, napi_value object, const char* key, const char* value) {
  set_property(env, object, key, text_value(env, value));
}

// Returns nothing, or why the backend cannot be used.
napi_value open_backend(napi_env env, napi_callback_info info) {
  napi_value args[4] = {};
  size_t argc = 4;
  napi_get_cb_info(env, info, &argc, args, nullptr, nullptr);
  Devices& devices = Devices::get();
  std::lock_guard<std::mutex> lock(devices.mutex);  // a worker may open it at the same time
  if (devices.cuda.load()) return nullptr;
  const std::string path = string_argument(env, args[0]), cublaslt = string_argument(env, args[1]);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return text_value(env, dlerror());
  using Entry = const Backend* (*)();
  auto entry = reinterpret_cast<Entry>(dlsym(library, "shardwise_backend_v1"));
  if (!entry) return text_value(env, "it has no symbol shardwise_backend_v1");
  const Backend* backend = entry();
  if (backend->abi != kBackendAbi)
    return text_value(env, "it was built for another version of the addon");
  bool same = backend->num_kernels == devices.cpu->num_kernels;
  for (int32_t i = 0; same && i < backend->num_kernels; i++)
    same = !std::strcmp(backend->kernels[i].name, devices.cpu->kernels[i].name);
  if (!same) return text_value(env, "its kernel table differs from the addon's: rebuild both");
  if (backend->device_count() <= 0) {
    DeviceInfo device;
    ErrorText error;
    backend->device_info(0, &device, &error);
    return text_value(env, error.text[0] ? error.text : "no CUDA device was found");
  }
  backend->look_at("cuBLASLt", cublaslt.c_str());
  backend->look_at("NCCL", string_argument(env, args[2]).c_str());
  backend->look_at("NVRTC", string_argument(env, args[3]).c_str());
  devices.can_fuse = reinterpret_cast<bool (*)(int32_t)>(dlsym(library, "shardwise_can_fuse"));
  devices.cuda.store(backend);
  return nullptr;
}

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

// Opens a library to read its version. It stays open: unloading CUDA libraries is not safe.
napi_value probe_library(napi_env env, napi_callback_info info) {
  napi_value args[2] = {}, result = nullptr;
  size_t argc = 2;
  napi_get_cb_info(env, info, &argc, args, nullptr, nullptr);
  napi_create_object(env, &result);
  const std::string name = string_argument(env, args[0]), symbol = string_argument(env, args[1]);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    set_text(env, result, "reason", dlerror());
    return result;
  }
  link_map* map = nullptr;
  const bool known = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map;
  set_text(env, result, "path", known ? map->l_name : name.c_str());
  void* entry = symbol.empty() ? nullptr : dlsym(library, symbol.c_str());
  set_number(env, result, "version", entry ? version_of(symbol, entry) : 0);
  return result;
}

napi_value device_count(napi_env env, napi_callback_info info) {
  napi_value arg = nullptr, result = nullptr;
  size_t argc = 1;
  napi_get_cb_info(env, info, &argc, &arg, nullptr, nullptr);
  const bool cuda = string_argument(env, arg) == "cuda";
  const Backend* backend = Devices::get().cuda.load();
  napi_create_int32(env, cuda ? (backend ? backend->device_count() : 0) : 1, &result);
  return result;
}

bool device_argument(napi_env env, napi_callback_info info, int64_t* device,
                     int64_t* second = nullptr) {
  int64_t args[2] = {0, 0};
  if (!read_integers(env, info, second ? 2 : 1, args)) return false;
  if (!Devices::get().valid(args[0])) {
    fail_call(env, Code::Device, "there is no such device");
    return false;
  }
  *device = args[0];
  if (second) *second = args[1];
  return true;
}

napi_value device_info(napi_env env, napi_callback_info info) {
  int64_t device;
  if (!device_argument(env, info, &device)) return nullptr;
  DeviceInfo found{};
  ErrorText error;
  const auto code = static_cast<int32_t>(device);
  Status status = Devices::get().backend(code)->device_info(Devices::index(code), &found, &error);
  if (!status.ok()) return fail_call(env, status.code, error);
  napi_value result = nullptr;
  napi_create_object(env, &result);
  set_text(env, result, "name", found.name);
  set_text(env, result, "detail", found.detail);
  set_number(env, result, "totalBytes", static_cast<double>(found.total_bytes));
  set_number(env, result, "freeBytes", static_cast<double>(found.free_bytes));
  set_number(env, result, "major", found.major);
  set_number(env, result, "minor", found.minor);
  set_number(env, result, "numCores", found.num_cores);
  return result;
}

// Whether fused_pointwise runs on the device.
napi_value can_fuse(napi_env env, napi_callback_info info) {
  int64_t device;
  if (!device_argument(env, info, &device)) return nullptr;
  const auto code = static_cast<int32_t>(device);
  const auto cuda = Devices::get().can_fuse;
  return boolean_value(env, code == 0 || (cuda && cuda(Devices::index(code))));
}

napi_value set_blocking(napi_env env, napi_callback_info info) {
  int64_t value;
  if (read_integers(env, info, 1, &value)) state_of(env).blocking = value != 0;
  return nullptr;
}

// The tuning of a device's backend, from a device number and a text; null, with a failure recorded,
// if it has none.
const Tuning* tuning_arguments(napi_env env, napi_callback_info info, int32_t* index,
                               std::string* text) {
  int64_t args[2] = {0, 0};
  napi_value raw[2] = {};
  if (!read_integers(env, info, 2, args, raw, 1u << 1)) return nullptr;
  const Tuning* tuning = nullptr;
  if (Devices::get().valid(args[0])) {
    const auto code = static_cast<int32_t>(args[0]);
    *index = Devices::index(code);
    tuning = Devices::get().backend(code)->tuning;
  }
  *text = string_argument(env, raw[1]);
  if (!tuning) fail_call(env, Code::Device, "there is no such device, or it has no tuning table");
  return tuning;
}

napi_value tuning_version(napi_env env, napi_callback_info) {
  const Backend* cuda = Devices::get().cuda.load();
  return number_value(env, cuda && cuda->tuning ? cuda->tuning->version : 0);
}

napi_value load_tuning(napi_env env, napi_callback_info info) {
  int32_t device = 0;
  std::string table;
  const Tuning* tuning = tuning_arguments(env, info, &device, &table);
  if (!tuning) return nullptr;
  ErrorText error;
  const Status status = tuning->load(device, table.c_str(), &error);
  return status.ok() ? nullptr : fail_call(env, status.code, error);
}

napi_value tuning_configurations(napi_env env, napi_callback_info info) {
  int32_t device = 0;
  std::string product;
  const Tuning* tuning = tuning_arguments(env, info, &device, &product);
  if (!tuning) return nullptr;
  std::string names(4096, 0);
  tuning->configurations(device, product.c_str(), names.data(), static_cast<int32_t>(names.size()));
  return text_value(env, names.c_str());
}

napi_value last_tuned(napi_env env, napi_callback_info info) {
  int64_t device;
  if (!device_argument(env, info, &device)) return nullptr;
  const Tuning* tuning = Devices::get().backend(static_cast<int32_t>(device))->tuning;
  char text[256] = "";
  if (tuning) tuning->last(Devices::index(static_cast<int32_t>(device)), text, sizeof text);
  return text_value(env, text);
}

napi_value memory_stats(napi_env env, napi_callback_info info) {
  int64_t device;
  if (!device_argument(env, info, &device)) return nullptr;
  Environment& state = state_of(env);
  const MemoryStats stats = Devices::get().allocator(static_cast<int32_t>(device))->stats();
  int64_t tokens = 0, token_bytes = 0;
  if (device == 0 && !Devices::get().cuda) {
    tokens = state.tokens + state.saved;
    token_bytes = state.token_bytes + state.saved_bytes;
  } else {
    state.storages.for_each([&](int64_t, StorageEntry& entry) {
      if (entry.device != device || (entry.tokens == 0 && !entry.saved)) return;
      tokens++;
      token_bytes += entry.bytes;
    });
  }
  const MemoryStats pinned = device == 0 && Devices::get().pinned_kept.load()
                                 ? Devices::get().pinned_allocator()->stats()
                                 : MemoryStats{};
  napi_value result = nullptr;
  napi_create_object(env, &result);
  const std::pair<const char*, int64_t> fields[] = {{"allocatedBytes", stats.allocated},
                                                    {"reservedBytes", stats.reserved},
                                                    {"peakAllocatedBytes", stats.peak_allocated},
                                                    {"peakReservedBytes", stats.peak_reserved},
                                                    {"liveBlocks", stats.live_blocks},
                                                    {"allocations", stats.allocations},
                                                    {"frees", stats.frees},
                                                    {"segments", stats.segments},
                                                    {"cachedBytes", stats.cached},
                                                    {"largestFreeBlock", stats.largest_free},
                                                    {"tokens", tokens},
                                                    {"tokenBytes", token_bytes},
                                                    {"outOfMemoryRetries", stats.retries},
                                                    {"scratchBytes", stats.scratch},
                                                    {"pinnedBytes", pinned.allocated},
                                                    {"pinnedReservedBytes", pinned.reserved}};
  for (auto& [key, value] : fields) set_number(env, result, key, static_cast<double>(value));
  return result;
}

// Frees the storages of collected tokens where finalizers are deferred. Writes to the shared words:
// the number of storages with tokens, their bytes, and the bytes of those that graphs saved, which
// the first two leave out. On all devices.
napi_value token_counts(napi_env env, napi_callback_info) {
  Environment& state = state_of(env);
  state.sweep_tokens();
  state.words[0] = static_cast<double>(state.tokens);
  state.words[1] = static_cast<double>(state.token_bytes);
  state.words[2] = static_cast<double>(state.saved_bytes);
  return nullptr;
}

napi_value defer_finalizers(napi_env env, napi_callback_info) {
  state_of(env).defers_finalizers = true;
  return nullptr;
}

napi_value reset_peak_stats(napi_env env, napi_callback_info info) {
  int64_t device;
  if (device_argument(env, info, &device))
    Devices::get().allocator(static_cast<int32_t>(device))->reset_peaks();
  return nullptr;
}

napi_value empty_cache(napi_env env, napi_callback_info info) {
  int64_t device, idle_ms;
  if (!device_argument(env, info, &device, &idle_ms)) return nullptr;
  Devices& devices = Devices::get();
  // Memory is not idle as long as its stream has a wait to come.
  for (const auto& stream : state_of(env).streams) stream->flush_waits();
  devices.allocator(static_cast<int32_t>(device))->empty_cache(idle_ms);
  if (device == 0 && devices.pinned_kept.load()) devices.pinned_allocator()->empty_cache(idle_ms);
  return nullptr;
}

// Freed memory that the C heap keeps, mostly of ArrayBuffers. glibc has this call; other C
// libraries need none.
extern "C" int malloc_trim(size_t keep) __attribute__((weak));

napi_value trim_heap(napi_env, napi_callback_info) {
  trim_c_heap();
  return nullptr;
}

napi_value memory_snapshot(napi_env env, napi_callback_info info) {
  int64_t device;
  if (!device_argument(env, info, &device)) return nullptr;
  napi_value list = nullptr;
  napi_create_array(env, &list);
  uint32_t at = 0;
  for (auto& segment : Devices::get().allocator(static_cast<int32_t>(device))->snapshot()) {
    napi_value item = nullptr, blocks = nullptr;
    napi_create_object(env, &item);
    set_number(env, item, "address",
               static_cast<double>(reinterpret_cast<uintptr_t>(segment.address)));
    set_number(env, item, "bytes", static_cast<double>(segment.bytes));
    set_number(env, item, "stream", segment.stream);
    napi_create_array(env, &blocks);
    uint32_t k = 0;
    for (auto& block : segment.blocks) {
      napi_value entry = nullptr;
      napi_create_object(env, &entry);
      set_number(env, entry, "offset", static_cast<double>(block.offset));
      set_number(env, entry, "bytes", static_cast<double>(block.bytes));
      set_text(env, entry, "state", block.state);
      napi_set_element(env, blocks, k++, entry);
    }
    set_property(env, item, "blocks", blocks);
    napi_set_element(env, list, at++, item);
  }
  return list;
}

napi_value shutdown(napi_env env, napi_callback_info) {
  Failure ignored;
  for (auto& stream : state_of(env).streams) stream->synchronize(&ignored);
  return nullptr;
}

}  // namespace

void trim_c_heap() {
  if (malloc_trim) malloc_trim(0);
}

void export_devices(napi_env env, napi_value exports) {
  export_function<open_backend>(env, exports, "openBackend");
  export_function<probe_library>(env, exports, "probeLibrary");
  export_function<device_count>(env, exports, "deviceCount");
  export_function<device_info>(env, exports, "deviceInfo");
  export_function<can_fuse>(env, exports, "canFuse");
  export_function<set_blocking>(env, exports, "setBlocking");
  export_function<tuning_version>(env, exports, "tuningVersion");
  export_function<load_tuning>(env, exports, "loadTuning");
  export_function<tuning_configurations>(env, exports, "tuningConfigurations");
  export_function<last_tuned>(env, exports, "lastTuned");
  export_function<memory_stats>(env, exports, "memoryStats");
  export_function<reset_peak_stats>(env, exports, "resetPeakStats");
  export_function<empty_cache>(env, exports, "emptyCache");
  export_function<trim_heap>(env, exports, "trimHeap");
  export_function<token_counts>(env, exports, "tokenCounts");
  export_function<defer_finalizers>(env, exports, "deferFinalizers");
  export_function<memory_snapshot>(env, exports, "memorySnapshot");
  export_function<shutdown>(env, exports, "shutdown");
}

}  // namespace shardwise
