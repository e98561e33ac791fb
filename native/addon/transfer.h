// What values cross on their way in (write_values.cc) and out (read_values.cc).
#pragma once
#include "borrowed.h"
#include "environment.h"

namespace shardwise {

// The bytes of a typed array.
struct ArrayView {
  char* data = nullptr;
  int64_t bytes = 0;
  napi_value buffer = nullptr;
};

// False, with a failure recorded, unless `value` is a typed array.
bool view_of(napi_env env, napi_value value, ArrayView* out);

// The entry of a handle, after a check of the byte range; null, with a failure recorded, if it does
// not fit.
StorageEntry* range_of(napi_env env, int64_t handle, int64_t offset, int64_t bytes, Stream* stream,
                       bool any_device = false);

// The functions below run on the stream's thread, and record failures in the stream.
void copy_now(Stream& s, void* to, const void* from, int64_t bytes, CopyKind kind);
void wait_for_device(Stream& s);
// Copies through pinned memory in chunks; the native thread waits for each. A large copy would
// block the JavaScript thread for long.
void copy_in_chunks(Stream& s, char* device, char* host, int64_t bytes, CopyKind kind);

}  // namespace shardwise
