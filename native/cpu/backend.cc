// The CPU as a device: kernels run on the stream's thread, so a stream with an empty ring is
// complete.
#include "../include/backend.h"

#include <chrono>
#include <cstring>
#include <exception>

#include "../platform/platform.h"
#include "isa.h"
#include "launch_together.h"
#include "memory_limit.h"
#include "parallel_for.h"

namespace shardwise::cpu {

#define SW_KERNEL(id, name) Status name(const KernelCall& call);
#include "../generated/kernel_table.def"
#undef SW_KERNEL

namespace {

constexpr KernelEntry kKernels[] = {
#define SW_KERNEL(id, name) {#name, name},
#include "../generated/kernel_table.def"
#undef SW_KERNEL
};

using Clock = std::chrono::steady_clock;

int32_t device_count() { return 1; }

Status device_info(int32_t, DeviceInfo* info, ErrorText*) {
  constexpr const char* levels[] = {"baseline", "avx2", "avx512"};
  std::memset(info, 0, sizeof *info);
  snprintf(info->name, sizeof info->name, "cpu");
  platform::processor_name(info->name, sizeof info->name);
  const CpuFeatures& features = cpu_features();
  snprintf(info->detail, sizeof info->detail, "%s%s", levels[static_cast<int>(features.isa)],
           features.avx512_bf16 ? " bf16" : "");
  const platform::MemorySize memory = host_memory();
  info->total_bytes = memory.total;
  info->free_bytes = memory.free;
  info->num_cores = num_threads();
  return kOk;
}

Status allocate(int32_t, int64_t bytes, void** out, ErrorText* error) {
  const Status status = reserve_memory(bytes, error);
  if (!status.ok()) return status;
  void* data = platform::map_memory(bytes);
  if (!data) {
    return_memory(bytes);
    return fail(error, Code::OutOfMemory, "the system refused %lld bytes",
                static_cast<long long>(bytes));
  }
  // Large pages for large tensors: fewer page faults at the first write.
  if (bytes >= (4 << 20)) platform::use_large_pages(data, bytes);
  *out = data;
  return kOk;
}

void release(int32_t, void* pointer, int64_t bytes) {
  platform::unmap_memory(pointer, bytes);
  return_memory(bytes);
}

Status host_allocate(int64_t bytes, void** out, ErrorText* error) {
  *out = std::malloc(bytes > 0 ? bytes : 1);
  return *out ? kOk
              : fail(error, Code::OutOfMemory, "the system refused %lld bytes",
                     static_cast<long long>(bytes));
}

void host_release(void* pointer, int64_t) { std::free(pointer); }

Status stream_create(int32_t, int32_t, const ScratchSource&, void** out, ErrorText*) {
  static char any_stream;
  *out = &any_stream;
  return kOk;
}
void stream_destroy(void*) {}
Status stream_query(void*, bool* done, ErrorText*) {
  *done = true;
  return kOk;
}
Status stream_synchronize(void*, ErrorText*) { return kOk; }
Status stream_on_complete(void*, OnComplete done, void* context, ErrorText*) {
  done(context, nullptr);
  return kOk;
}

struct Event {
  Clock::time_point at;
};
Status event_create(int32_t, bool, void** out, ErrorText*) {
  *out = new Event;
  return kOk;
}
void event_destroy(void* event) { delete static_cast<Event*>(event); }
Status event_record(void* event, void*, ErrorText*) {
  static_cast<Event*>(event)->at = Clock::now();
  return kOk;
}
Status event_wait(void*, void*, ErrorText*) { return kOk; }
Status event_synchronize(void*, ErrorText*) { return kOk; }
Status event_query(void*, bool* done, ErrorText*) {
  *done = true;
  return kOk;
}
Status event_elapsed_ms(void* start, void* end, double* ms, ErrorText*) {
  *ms = std::chrono::duration<double, std::milli>(static_cast<Event*>(end)->at -
                                                  static_cast<Event*>(start)->at)
            .count();
  return kOk;
}

void look_at(const char*, const char*) {}

Status launch(const KernelCall& call) {
  try {
    return kKernels[call.kernel].run(call);
  } catch (const std::bad_alloc&) {
    return fail(call.error, Code::OutOfMemory, "the kernel found no memory for its scratch space");
  } catch (const std::exception& error) {
    return fail(call.error, Code::Invalid, "%s", error.what());
  }
}

Status copy(void*, void* destination, const void* source, int64_t bytes, CopyKind, ErrorText*) {
  if (bytes > 0) std::memmove(destination, source, bytes);
  return kOk;
}

constexpr Backend kBackend = {
    kBackendAbi,
    "cpu",
    false,
    64,
    static_cast<int32_t>(sizeof kKernels / sizeof *kKernels),
    kKernels,
    device_count,
    device_info,
    allocate,
    release,
    host_allocate,
    host_release,
    stream_create,
    stream_destroy,
    stream_query,
    stream_synchronize,
    nullptr,
    stream_on_complete,
    event_create,
    event_destroy,
    event_record,
    event_wait,
    event_synchronize,
    event_query,
    event_elapsed_ms,
    look_at,
    launch,
    launch_together,
    copy,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

}  // namespace shardwise::cpu

extern "C" const shardwise::Backend* shardwise_cpu_backend() { return &shardwise::cpu::kBackend; }
