#include "transfer.h"

#include <cstring>
#include <string>

#include "../runtime/staging.h"

namespace shardwise {

bool view_of(napi_env env, napi_value value, ArrayView* out) {
  bool typed = false;
  void* data = nullptr;
  size_t length = 0, offset = 0;
  if (napi_is_typedarray(env, value, &typed) != napi_ok || !typed) {
    fail_call(env, Code::Invalid, "expected a typed array");
    return false;
  }
  // Older versions of Node leave the type unset for unknown arrays (Float16Array).
  constexpr uint32_t unknown = 255;
  auto type = static_cast<napi_typedarray_type>(unknown);
  napi_get_typedarray_info(env, value, &type, &length, &data, &out->buffer, &offset);
  constexpr int sizes[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 2};
  if (static_cast<size_t>(type) >= sizeof sizes / sizeof *sizes) {
    fail_call(env, Code::Invalid, "this kind of typed array is not supported");
    return false;
  }
  out->data = static_cast<char*>(data);
  out->bytes = static_cast<int64_t>(length) * sizes[type];
  return true;
}

StorageEntry* range_of(napi_env env, int64_t handle, int64_t offset, int64_t bytes, Stream* stream,
                       bool any_device) {
  StorageEntry* entry = state_of(env).storages.find(handle);
  if (!entry || !stream) {
    fail_call(env, Code::Closed, "the storage was freed");
    return nullptr;
  }
  if (!any_device && entry->device != stream->device_code()) {
    fail_call(env, Code::Device, "the storage is on another device than the stream");
    return nullptr;
  }
  ErrorText error;
  const Status status = state_of(env).check_adopted(*entry, &error);
  if (!status.ok()) {
    fail_call(env, status.code, error);
    return nullptr;
  }
  if (offset < 0 || bytes < 0 || offset + bytes > entry->bytes) {
    fail_call(env, Code::Invalid,
              ("bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
               " are outside a storage of " + std::to_string(entry->bytes))
                  .c_str());
    return nullptr;
  }
  return entry;
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
