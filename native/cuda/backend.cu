// The CUDA backend: fills the struct of include/backend.h by the runtime API. The runtime is linked
// statically, so that a machine without a driver can load this library and gets an error message.
#include <strings.h>

#include <cstring>
#include <new>

#include "../include/backend.h"
#include "comm/nccl.h"
#include "cublaslt.h"
#include "devices.h"
#include "draw_report.cuh"
#include "fused/nvrtc.h"
#include "kernels/matmul/matmul_table.h"
#include "load_kernels.h"
#include "stream.h"

namespace shardwise::cuda {

extern const KernelEntry kKernels[];
extern const int32_t kNumKernels;

namespace {

constexpr int64_t kMinScratch = int64_t(4) << 20;
// a larger scratch buffer is released when the stream is synchronised
constexpr int64_t kKeepScratch = int64_t(64) << 20;

// ---- memory ------------------------------------------------------------------------------------

Status allocate(int32_t device, int64_t bytes, void** out, ErrorText* error) {
  const Status status = use_device(device, error);
  if (!status.ok()) return status;
  SW_TRY(error, cudaMalloc(out, static_cast<size_t>(bytes)));
  return kOk;
}

void release(int32_t device, void* pointer, int64_t) {
  if (use_device(device, nullptr).ok()) cudaFree(pointer);
}

Status host_allocate(int64_t bytes, void** out, ErrorText* error) {
  const Status status = use_any_device(error);
  if (!status.ok()) return status;
  SW_TRY(error, cudaHostAlloc(out, static_cast<size_t>(bytes), cudaHostAllocPortable));
  return kOk;
}

void host_release(void* pointer, int64_t) { cudaFreeHost(pointer); }

// ---- streams -----------------------------------------------------------------------------------

void stream_destroy(void* object) {
  Stream* stream = static_cast<Stream*>(object);
  if (!stream) return;
  if (use_device(stream->device, nullptr).ok()) {
    if (stream->handle) cudaStreamSynchronize(stream->handle);
    stream->set_scratch(0, nullptr);
    if (stream->handle) cudaStreamDestroy(stream->handle);
    if (stream->claim) cudaFree(stream->claim);
    if (stream->record) cudaFreeHost(stream->record);
    cudaGetLastError();
  }
  delete stream;
}

Status fill_stream(Stream& stream, int32_t priority, ErrorText* error) {
  stream.facts = device_facts(stream.device);
  int least = 0, greatest = 0;  // numerically greatest <= 0 <= least
  SW_TRY(error, cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const int clamped = priority < greatest ? greatest : priority > least ? least : priority;
  SW_TRY(error, cudaStreamCreateWithPriority(&stream.handle, cudaStreamNonBlocking, clamped));
  // `claim` is the first word; the counters begin at the next 256 bytes
  constexpr int32_t kBefore = 64;
  constexpr size_t kWords = kBefore + Stream::kArrived;
  SW_TRY(error, cudaMalloc(reinterpret_cast<void**>(&stream.claim), kWords * sizeof(int32_t)));
  SW_TRY(error, cudaMemsetAsync(stream.claim, 0, kWords * sizeof(int32_t), stream.handle));
  stream.arrived = stream.claim + kBefore;
  SW_TRY(error, cudaHostAlloc(reinterpret_cast<void**>(&stream.record), sizeof(IndexError),
                              cudaHostAllocMapped | cudaHostAllocPortable));
  memset(stream.record, 0, sizeof(IndexError));
  SW_TRY(error, cudaHostGetDevicePointer(reinterpret_cast<void**>(&stream.record_on_device),
                                         stream.record, 0));
  return kOk;
}

Status stream_create(int32_t device, int32_t priority, const ScratchSource& scratch, void** out,
                     ErrorText* error) {
  Status status = use_device(device, error);
  if (!status.ok()) return status;
  Stream* stream = new (std::nothrow) Stream;
  if (!stream) return fail(error, Code::OutOfMemory, "no host memory for a stream");
  stream->device = device;
  stream->scratch_source = scratch;
  status = fill_stream(*stream, priority, error);
  if (!status.ok()) {
    stream_destroy(stream);
    return status;
  }
  *out = stream;
  return kOk;
}

Status draw_failure(const IndexError& e, const char* prefix, ErrorText* error) {
  char start[128];
  snprintf(start, sizeof start, "%s%s: ", prefix, kernel_name(e.kernel));
  return fail_draw(error, start, draw_fault_of(e));
}

// Whether a kernel has reported an invalid index, or a value that nothing can be drawn by, since the
// last take_index_error. Costs a read of host memory. `prefix` is the start of the message.
Status peek_index_error(const Stream& stream, const char* prefix, ErrorText* error) {
  const volatile int32_t* ready = &stream.record->ready;
  if (*ready == 0) return kOk;
  std::atomic_thread_fence(std::memory_order_acquire);
  const IndexError e = *stream.record;
  if (is_draw_report(e)) return draw_failure(e, prefix, error);
  return fail(error, Code::Index, "%s%s: index %lld at position %lld is out of range for size %lld",
              prefix, kernel_name(e.kernel), static_cast<long long>(e.value),
              static_cast<long long>(e.position), static_cast<long long>(e.size));
}

// Kernels that are still queued may report another invalid index; the runtime drops the results of
// all of them.
Status take_index_error(Stream& stream, const char* prefix, ErrorText* error) {
  const Status status = peek_index_error(stream, prefix, error);
  if (status.ok()) return kOk;
  cudaStreamSynchronize(stream.handle);
  *const_cast<volatile int32_t*>(&stream.record->ready) = 0;
  cudaMemsetAsync(stream.claim, 0, sizeof(int32_t), stream.handle);
  return status;
}

// The error of a faulted kernel. The driver does not say which one it was, so the message has the
// last launches. The process cannot use CUDA afterwards.
Status kernel_fault(const Stream& stream, cudaError_t code, ErrorText* error) {
  const uint32_t launches = stream.launches.load();
  const uint32_t named = launches < Stream::kRecent ? launches : Stream::kRecent;
  char names[256] = "none";
  int at = 0;
  for (uint32_t i = 1; i <= named && at < 200; i++)
    at += snprintf(names + at, sizeof names - at, "%s%.30s", i == 1 ? "" : ", ",
                   kernel_name(stream.recent[(launches - i) % Stream::kRecent].load()));
  return fail(
      error, Code::Device,
      "%s (CUDA error %d) in %s; the GPU's context is lost with all tensors on it, so the process "
      "must be restarted%s",
      cudaGetErrorString(code), static_cast<int>(code), names,
      named > 1
          ? " (SHARDWISE_BLOCKING=1 finds the one: these are the last launches, the latest first)"
          : "");
}

Status stream_synchronize(void* object, ErrorText* error) {
  Stream& stream = *static_cast<Stream*>(object);
  const Status status = use_device(stream.device, error);
  if (!status.ok()) return status;
  const cudaError_t code = cudaStreamSynchronize(stream.handle);
  if (code != cudaSuccess) return kernel_fault(stream, code, error);
  stream.launches.store(0);
  if (stream.scratch_bytes > kKeepScratch) stream.set_scratch(0, nullptr);
  return take_index_error(stream, "", error);
}

Status stream_failure(void* object, ErrorText* error) {
  return peek_index_error(*static_cast<const Stream*>(object), "", error);
}

Status stream_query(void* object, bool* done, ErrorText* error) {
  const Stream& stream = *static_cast<Stream*>(object);
  const Status status = use_device(stream.device, error);
  if (!status.ok()) return status;
  const cudaError_t code = cudaStreamQuery(stream.handle);
  *done = code != cudaErrorNotReady;
  return *done && code != cudaSuccess ? kernel_fault(stream, code, error) : kOk;
}

struct Watch {
  const Stream* stream;
  OnComplete done;
  void* context;
};

// A stream callback, not a host function: CUDA does not call host functions once the context has
// failed.
Status stream_on_complete(void* object, OnComplete done, void* context, ErrorText* error) {
  Stream& stream = *static_cast<Stream*>(object);
  const Status status = use_device(stream.device, error);
  if (!status.ok()) return status;
  auto* watch = new Watch{&stream, done, context};
  const auto called = [](cudaStream_t, cudaError_t code, void* data) {
    const Watch w = *static_cast<Watch*>(data);
    delete static_cast<Watch*>(data);
    Failed failed;
    failed.status = code == cudaSuccess ? peek_index_error(*w.stream, "", &failed.text)
                                        : kernel_fault(*w.stream, code, &failed.text);
    w.done(w.context, failed.status.ok() ? nullptr : &failed);
  };
  const cudaError_t code = cudaStreamAddCallback(stream.handle, called, watch, 0);
  if (code == cudaSuccess) return kOk;
  delete watch;
  return kernel_fault(stream, code, error);
}

// ---- events ------------------------------------------------------------------------------------

cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

Status event_create(int32_t device, bool timing, void** out, ErrorText* error) {
  const Status status = use_device(device, error);
  if (!status.ok()) return status;
  cudaEvent_t event = nullptr;
  SW_TRY(error,
         cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
  *out = event;
  return kOk;
}

void event_destroy(void* event) { cudaEventDestroy(event_of(event)); }

Status event_record(void* event, void* object, ErrorText* error) {
  Stream& stream = *static_cast<Stream*>(object);
  const Status status = use_device(stream.device, error);
  if (!status.ok()) return status;
  SW_TRY(error, cudaEventRecord(event_of(event), stream.handle));
  return kOk;
}

Status event_wait(void* event, void* object, ErrorText* error) {
  Stream& stream = *static_cast<Stream*>(object);
  const Status status = use_device(stream.device, error);
  if (!status.ok()) return status;
  SW_TRY(error, cudaStreamWaitEvent(stream.handle, event_of(event), 0));
  return kOk;
}

Status event_synchronize(void* event, ErrorText* error) {
  SW_TRY(error, cudaEventSynchronize(event_of(event)));
  return kOk;
}

Status event_query(void* event, bool* done, ErrorText* error) {
  const cudaError_t code = cudaEventQuery(event_of(event));
  *done = code == cudaSuccess;
  if (code == cudaSuccess || code == cudaErrorNotReady) return kOk;
  return cuda_failure(error, code, "cudaEventQuery");
}

Status event_elapsed_ms(void* start, void* end, double* ms, ErrorText* error) {
  float value = 0;
  SW_TRY(error, cudaEventElapsedTime(&value, event_of(start), event_of(end)));
  *ms = value;
  return kOk;
}

void look_at(const char* library, const char* candidates) {
  if (strcmp(library, "cuBLASLt") == 0) lt::look_at(candidates);
  if (strcasecmp(library, "NCCL") == 0) nccl::look_at(candidates);
  if (strcmp(library, "NVRTC") == 0) nvrtc::look_at(candidates);
}

// ---- launches and scratch memory --------------------------------------------------------------

// An invalid index in an earlier kernel fails this launch, which then starts nothing.
Status launch(const KernelCall& call) {
  Stream& stream = stream_of(call);
  Status status = use_device(stream.device, call.error);
  if (!status.ok()) return status;
  if (call.kernel < 0 || call.kernel >= kNumKernels)
    return fail(call.error, Code::Invalid, "there is no kernel %d", call.kernel);
  status = take_index_error(stream, "not started because of an earlier ", call.error);
  if (!status.ok()) return status;
  const uint32_t launches = stream.launches.load(std::memory_order_relaxed);
  stream.recent[launches % Stream::kRecent].store(call.kernel, std::memory_order_relaxed);
  stream.launches.store(launches + 1, std::memory_order_relaxed);
  return kKernels[call.kernel].run(call);
}

Status copy(void* object, void* destination, const void* source, int64_t bytes, CopyKind kind,
            ErrorText* error) {
  Stream& stream = *static_cast<Stream*>(object);
  const Status status = use_device(stream.device, error);
  if (!status.ok()) return status;
  if (bytes == 0) return kOk;
  const cudaMemcpyKind how = kind == CopyKind::HostToHost     ? cudaMemcpyHostToHost
                             : kind == CopyKind::HostToDevice ? cudaMemcpyHostToDevice
                             : kind == CopyKind::DeviceToHost ? cudaMemcpyDeviceToHost
                                                              // possibly between two devices
                                                              : cudaMemcpyDefault;
  SW_TRY(error,
         cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes), how, stream.handle));
  return kOk;
}

}  // namespace

void* Stream::workspace(int64_t bytes, const KernelCall& call) {
  if (bytes <= scratch_bytes) return scratch;
  int64_t size = round_up(bytes, int64_t(1) << 20);
  if (size < kMinScratch) size = kMinScratch;
  if (size <= kKeepScratch / 2) size *= 2;
  // An exact allocation is better than none.
  if (!set_scratch(size, call.error).ok()) set_scratch(bytes, call.error);
  return scratch;
}

Status Stream::set_scratch(int64_t bytes, ErrorText* error) {
  scratch = nullptr;
  scratch_bytes = 0;
  const Status status = scratch_source.give(scratch_source.context, bytes, &scratch, error);
  if (status.ok()) scratch_bytes = bytes;
  return status;
}

Status cuda_failure(ErrorText* error, cudaError_t code, const char* what) {
  cudaGetLastError();
  return fail(error, code == cudaErrorMemoryAllocation ? Code::OutOfMemory : Code::Device,
              "%s: %s (CUDA error %d)", what, cudaGetErrorString(code), static_cast<int>(code));
}

}  // namespace shardwise::cuda

extern "C" __attribute__((visibility("default"))) const shardwise::Backend* shardwise_backend_v1() {
  using namespace shardwise::cuda;
  static const shardwise::Tuning tuning = {kMatmulConfigVersion, load_matmul_table, matmul_configs,
                                           last_matmul};
  static const shardwise::Backend backend = {
      // clang-format off
      shardwise::kBackendAbi, "cuda", true, 512, kNumKernels, kKernels,
      device_count, device_info,
      allocate, release, host_allocate, host_release,
      stream_create, stream_destroy, stream_query, stream_synchronize, stream_failure,
      stream_on_complete,
      event_create, event_destroy, event_record, event_wait, event_synchronize, event_query,
      event_elapsed_ms,
      look_at, launch, nullptr, copy,
      nccl::engine(), load_kernels, nccl::comm_id, nccl::comm_create, nccl::comm_split, &tuning,
      // clang-format on
  };
  return &backend;
}
