#include "borrowed.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace shardwise {

Status copy_borrowed(const void* from, int64_t bytes, BorrowedCopy* copy, ErrorText* error) {
  auto* made = static_cast<char*>(std::malloc(bytes > 0 ? bytes : 1));
  if (!made)
    return fail(error, Code::OutOfMemory, "no host memory for %lld bytes",
                static_cast<long long>(bytes));
  if (bytes > 0) std::memcpy(made, from, bytes);
  *copy = BorrowedCopy(made, FreeBytes{});
  return kOk;
}

bool runs_alone(const Stream& stream, const StorageEntry& entry) {
  if (!stream.only_kernels_pending()) return false;
  if (entry.last_stream)
    return entry.last_stream == &stream || entry.last_stream->completed() >= entry.last_sequence;
  return entry.owner == &stream || !entry.block || entry.block->settled();
}

Status may_wait(const Stream& stream, const std::function<bool()>& alone, ErrorText* error) {
  if (!stream.unbounded()) return kOk;
  // An awaited collective has finished, and the stream is about to notice.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (!alone() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (alone()) return kOk;
  return fail(error, Code::Unsupported,
              "work is under way that may wait for other ranks of this process, so nothing can be "
              "written to the memory of an ArrayBuffer, "
              "which would be waited for. Await that work first, or write to a copy: clone()");
}

// Runs on the JavaScript thread, the only one that moves or frees the memory of an ArrayBuffer: the
// check holds until the call returns.
Status check_adopted(Napi::Env env, const StorageEntry& entry, ErrorText* error) {
  napi_value buffer = nullptr;
  void* data = nullptr;
  size_t length = 0;
  bool detached = false;
  if (!entry.adopted ||
      napi_get_reference_value(env, static_cast<napi_ref>(entry.adopted), &buffer) != napi_ok)
    return kOk;
  napi_is_detached_arraybuffer(env, buffer, &detached);
  napi_get_arraybuffer_info(env, buffer, &data, &length);
  const char* start = static_cast<char*>(data);
  if (detached)
    return fail(error, Code::Closed,
                "the ArrayBuffer whose memory the tensor shows was transferred away");
  if (entry.data >= start && entry.data + entry.bytes <= start + length) return kOk;
  return fail(error, Code::Closed, "the ArrayBuffer whose memory the tensor shows was resized");
}

}  // namespace shardwise
