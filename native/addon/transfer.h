// Values of JavaScript in (write_values.cc) and out (read_values.cc), and copies between storages.
#pragma once
#include "borrowed.h"
#include "parameter.h"

namespace shardwise {

// The bytes of a typed array.
struct ArrayView {
  char* data = nullptr;
  int64_t bytes = 0;
  napi_value buffer = nullptr;
};

template <>
struct Parameter<ArrayView> : Argument<ArrayView> {
  Status read(Environment& state, Napi::Value given);
};

// Bytes of a storage.
struct Range {
  int64_t handle, offset, bytes;
};
// Finds the entry and the stream, after a check that the range fits.
Status find_range(Environment& state, const Range& range, Stream* stream, StorageEntry** entry,
                  ErrorText* error, bool any_device = false);

// Called by JavaScript. `offset` is in bytes.
Status write(Environment& state, int64_t handle, int64_t offset, ArrayView source, int64_t stream,
             ErrorText* error);
Status copy_bytes(Environment& state, int64_t to, int64_t to_offset, int64_t from,
                  int64_t from_offset, int64_t bytes, int64_t stream, ErrorText* error);
Status read_sync(Environment& state, int64_t handle, int64_t offset, ArrayView destination,
                 int64_t stream, ErrorText* error);
// Returns an element of that dtype.
Status read_scalar(Environment& state, int64_t handle, int64_t offset, int64_t dtype,
                   int64_t stream, Napi::Value* element, ErrorText* error);
// Both call `callback` with null, or with a NativeFailure, when the stream has come so far.
Status read_async(Environment& state, int64_t handle, int64_t offset, ArrayView destination,
                  int64_t stream, Napi::Value callback, ErrorText* error);
Status when_done(Environment& state, int64_t stream, Napi::Value callback, ErrorText* error);

// The functions below run on the stream's thread, and record failures in the stream.
void copy_now(Stream& s, void* to, const void* from, int64_t bytes, CopyKind kind);
void wait_for_device(Stream& s);
// Copies through pinned memory in chunks; the native thread waits for each. A large copy would
// block the JavaScript thread for long.
void copy_in_chunks(Stream& s, char* device, char* host, int64_t bytes, CopyKind kind);

}  // namespace shardwise
