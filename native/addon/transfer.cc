#include "transfer.h"

#include <cstring>

#include "../runtime/staging.h"
#include "environment.h"

namespace shardwise {

// Napi::TypedArray would ask three times, and takes a Float16Array, whose type older versions of Node
// leave unset, for an Int8Array.
Status Parameter<ArrayView>::read(Environment& state, Napi::Value given) {
  if (!given.IsTypedArray()) return fail(error_of(state), Code::Invalid, "expected a typed array");
  constexpr uint32_t unknown = 255;
  auto type = static_cast<napi_typedarray_type>(unknown);
  void* data = nullptr;
  size_t length = 0, offset = 0;
  napi_get_typedarray_info(state.env, given, &type, &length, &data, &value.buffer, &offset);
  constexpr int sizes[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 2};
  if (static_cast<size_t>(type) >= sizeof sizes / sizeof *sizes)
    return fail(error_of(state), Code::Invalid, "this kind of typed array is not supported");
  value.data = static_cast<char*>(data);
  value.bytes = static_cast<int64_t>(length) * sizes[type];
  return kOk;
}

Status find_range(Environment& state, const Range& range, Stream* stream, StorageEntry** entry,
                  ErrorText* error, bool any_device) {
  StorageEntry* found = state.storages.find(range.handle);
  if (!found || !stream) return fail(error, Code::Closed, "the storage was freed");
  if (!any_device && found->device != stream->device_code())
    return fail(error, Code::Device, "the storage is on another device than the stream");
  const Status status = check_adopted(state.env, *found, error);
  if (!status.ok()) return status;
  if (range.offset < 0 || range.bytes < 0 || range.offset + range.bytes > found->bytes)
    return fail(error, Code::Invalid, "bytes %lld to %lld are outside a storage of %lld",
                static_cast<long long>(range.offset),
                static_cast<long long>(range.offset + range.bytes),
                static_cast<long long>(found->bytes));
  *entry = found;
  return kOk;
}

void copy_now(Stream& s, void* to, const void* from, int64_t bytes, CopyKind kind) {
  ErrorText text;
  const Status status = s.backend()->copy(s.native(), to, from, bytes, kind, &text);
  if (!status.ok()) s.set_error(status.code, text);
}

void wait_for_device(Stream& s) {
  ErrorText text;
  const Status status = s.backend()->stream_synchronize(s.native(), &text);
  if (!status.ok()) s.set_error(status.code, text);
}

void copy_in_chunks(Stream& s, char* device, char* host, int64_t bytes, CopyKind kind) {
  ErrorText text;
  void* staging = nullptr;
  const Status status = take_staging(s.backend(), kLargeStaging, &staging, &text);
  if (!status.ok()) return s.set_error(status.code, text);
  for (int64_t at = 0; at < bytes && !s.skips(); at += kLargeStaging) {
    const int64_t chunk = bytes - at < kLargeStaging ? bytes - at : kLargeStaging;
    if (kind == CopyKind::HostToDevice) {
      std::memcpy(staging, host + at, chunk);
      copy_now(s, device + at, staging, chunk, kind);
      wait_for_device(s);
    } else {
      copy_now(s, staging, device + at, chunk, kind);
      wait_for_device(s);
      std::memcpy(host + at, staging, chunk);
    }
  }
  give_staging(staging, kLargeStaging);
}

}  // namespace shardwise
