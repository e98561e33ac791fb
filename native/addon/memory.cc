// Storages: allocation, tokens, freeing, resizing, adoption of ArrayBuffers.
#include <cstring>

#include "environment.h"

namespace shardwise {

namespace {

// Runs inside a collection: must not call JavaScript, nor take locks that are held while the engine
// is called.
void on_collected(node_api_basic_env, void* data, void* hint) {
  static_cast<Environment*>(hint)->drop_token(reinterpret_cast<int64_t>(data));
}

void on_shared_collected(node_api_basic_env, void* data, void* hint) {
  auto* shared = static_cast<SharedToken*>(data);
  auto* state = static_cast<Environment*>(hint);
  if (state->shared_token == shared) state->shared_token = nullptr;
  for (int i = 0; i < shared->count; i++) state->drop_token(shared->handles[i]);
  delete shared;
}

// Of the token that a graph keeps with a storage.
void on_saved_collected(node_api_basic_env, void* data, void* hint) {
  static_cast<Environment*>(hint)->set_saved(reinterpret_cast<int64_t>(data), false, true);
}

void count_token(Environment& state, StorageEntry& entry) {
  entry.tokens++;
  state.account(entry);
}

uint32_t pinned_pool(Environment& state) {
  if (state.pinned_pool < 0) state.pinned_pool = Devices::get().pinned_allocator()->open_pool();
  return static_cast<uint32_t>(state.pinned_pool);
}

// Pinned memory belongs to the CPU's stream.
Status allocate_bytes(Environment& state, StorageEntry& entry, Stream& stream, int64_t bytes,
                      bool pinned, ErrorText* error) {
  entry.bytes = bytes;
  entry.device = stream.device_code();
  entry.owner = &stream;
  entry.pinned = pinned;
  if (bytes == 0) return kOk;
  entry.allocator = pinned ? Devices::get().pinned_allocator() : stream.allocator();
  const uint32_t pool = pinned ? pinned_pool(state) : stream.pool();
  Status status = entry.allocator->allocate(bytes, pool, &entry.block, error);
  if (status.code == Code::OutOfMemory && !stream.idle()) {
    stream.flush_waits();
    // Freed blocks in use by commands in flight can be returned when those finish.
    stream.wait(stream.submitted());
    status = entry.allocator->allocate(bytes, pool, &entry.block, error);
  }
  if (status.ok()) entry.data = entry.block->data;
  if (status.ok() && state.log.is_open()) state.remember(entry, entry.block->bytes);
  return status;
}

// Writes the handle to the words; returns the token if one is wanted.
napi_value allocated(Environment& state, Stream& stream, int64_t bytes, bool with_token,
                     bool pinned) {
  ErrorText error;
  int64_t handle;
  const Status status = allocate_storage(state, stream, bytes, &handle, &error, pinned);
  if (!status.ok()) return fail_call(state.env, status.code, error);
  state.words[0] = static_cast<double>(handle);
  return with_token ? make_token(state, handle, *state.storages.find(handle)) : nullptr;
}

napi_value allocate(napi_env env, napi_callback_info info) {
  int64_t args[3];
  if (!read_integers(env, info, 3, args)) return nullptr;
  Environment& state = state_of(env);
  state.settle_accounts();
  Stream* stream = state.stream(args[0]);
  if (!stream || args[1] < 0) return fail_call(env, Code::Invalid, "allocate: bad stream or size");
  return allocated(state, *stream, args[1], args[2] != 0, false);
}

napi_value allocate_pinned(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  if (!Devices::get().cuda)
    return fail_call(env, Code::Device, "allocatePinned: pinned memory needs CUDA");
  Environment& state = state_of(env);
  state.settle_accounts();
  ErrorText error;
  Stream* stream = state.default_stream(0, &error);
  if (!stream) return fail_call(env, Code::Device, error);
  if (args[0] < 0)
    return fail_call(env, Code::Invalid, "allocatePinned: sizes must not be negative");
  return allocated(state, *stream, args[0], args[1] != 0, true);
}

napi_value adopt(napi_env env, napi_callback_info info) {
  int64_t args[4];
  napi_value raw[4] = {};
  if (!read_integers(env, info, 4, args, raw, 1)) return nullptr;
  void* data;
  size_t length;
  if (napi_get_arraybuffer_info(env, raw[0], &data, &length) != napi_ok)
    return fail_call(env, Code::Invalid,
                     "expected an array over an ArrayBuffer, got one over other memory (a "
                     "SharedArrayBuffer?); copy it with tensor()");
  bool detached = false;
  napi_is_detached_arraybuffer(env, raw[0], &detached);
  if (detached)
    return fail_call(env, Code::Invalid,
                     "the ArrayBuffer is detached: its memory was transferred away");
  if (args[1] < 0 || args[2] < 0 || static_cast<size_t>(args[1] + args[2]) > length)
    return fail_call(env, Code::Invalid, "the range is outside the buffer");
  Environment& state = state_of(env);
  state.settle_accounts();
  ErrorText error;
  Stream* stream = state.default_stream(0, &error);
  if (!stream) return fail_call(env, Code::Device, error);
  StorageEntry* entry;
  const int64_t handle = state.storages.add(&entry);
  if (!handle) return fail_call(env, Code::OutOfMemory, "too many tensors are alive");
  entry->data = static_cast<char*>(data) + args[1];
  entry->bytes = args[2];
  entry->owner = stream;
  napi_ref ref;
  napi_create_reference(env, raw[0], 1, &ref);
  entry->adopted = ref;
  state.words[0] = static_cast<double>(handle);
  return args[3] ? make_token(state, handle, *entry) : nullptr;
}

napi_value token(napi_env env, napi_callback_info info) {
  int64_t handle;
  if (!read_integers(env, info, 1, &handle)) return nullptr;
  Environment& state = state_of(env);
  StorageEntry* entry = state.storages.find(handle);
  if (!entry) return fail_call(env, Code::Closed, "makeToken: the storage was freed");
  return make_token(state, handle, *entry);
}

napi_value saved_token(napi_env env, napi_callback_info info) {
  int64_t handle;
  if (!read_integers(env, info, 1, &handle)) return nullptr;
  Environment& state = state_of(env);
  if (!state.storages.find(handle))
    return fail_call(env, Code::Closed, "savedToken: the storage was freed");
  state.set_saved(handle, true, false);
  return state.make_collectable(reinterpret_cast<void*>(handle), on_saved_collected);
}

napi_value set_saved(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  return boolean_value(env, state_of(env).set_saved(args[0], args[1] != 0, false));
}

napi_value release(napi_env env, napi_callback_info info) {
  int64_t handle;
  if (read_integers(env, info, 1, &handle)) state_of(env).release(handle, false);
  return nullptr;
}

napi_value release_many(napi_env env, napi_callback_info info) {
  int64_t count;
  if (!read_integers(env, info, 1, &count)) return nullptr;
  Environment& state = state_of(env);
  if (count > kWordBytes / 8) return fail_call(env, Code::Invalid, "releaseMany: too many handles");
  for (int64_t i = 0; i < count; i++) state.release(to_integer(state.words[i]), false);
  return nullptr;
}

// Frees the old block in stream order, so commands in flight may still use it.
napi_value resize(napi_env env, napi_callback_info info) {
  int64_t args[3];
  if (!read_integers(env, info, 3, args)) return nullptr;
  Environment& state = state_of(env);
  StorageEntry* entry = state.storages.find(args[0]);
  Stream* stream = state.stream(args[2]);
  if (!entry || !stream) return fail_call(env, Code::Closed, "resize_: the storage was freed");
  if (entry->device != stream->device_code())
    return fail_call(env, Code::Device, "resize_: the stream is of another device");
  if (entry->adopted)
    return fail_call(env, Code::Invalid,
                     "resize_: this storage shows memory of an ArrayBuffer and cannot be resized");
  if (args[1] < 0) return fail_call(env, Code::Invalid, "resize_: sizes must not be negative");
  // the pool of pinned memory follows one stream
  if (entry->pinned) stream = entry->owner;
  state.touch(*entry, *stream);
  ErrorText error;
  StorageEntry fresh;
  Status status = allocate_bytes(state, fresh, *stream, args[1], entry->pinned, &error);
  if (!status.ok()) return fail_call(env, status.code, error);
  const int64_t kept = args[1] < entry->bytes ? args[1] : entry->bytes;
  if (kept > 0) {
    char *to = fresh.data, *from = entry->data;
    const CopyKind kind =
        stream->backend()->asynchronous ? CopyKind::DeviceToDevice : CopyKind::HostToHost;
    const auto copy = [to, from, kept, kind](Stream& s) {
      ErrorText text;
      Status copied = s.backend()->copy(s.native(), to, from, kept, kind, &text);
      if (!copied.ok()) s.set_error(copied.code, text);
    };
    stream->enqueue(copy, copy_name(kind));
  }
  if (entry->token_bytes >= 0) state.token_bytes += args[1] - entry->bytes;
  if (entry->saved) state.saved_bytes += args[1] - entry->bytes;
  entry->last_sequence = stream->claimed();
  state.release_block(*entry, args[1] == 0);
  entry->block = fresh.block;
  entry->allocator = fresh.allocator;
  entry->data = fresh.data;
  entry->bytes = args[1];
  // The new block belongs to this stream, and no other has used it.
  entry->owner = stream;
  entry->other_streams.clear();
  entry->recorded = false;
  entry->last_sequence = stream->claimed();
  return nullptr;
}

napi_value record_stream(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  Environment& state = state_of(env);
  StorageEntry* entry = state.storages.find(args[0]);
  Stream* stream = state.stream(args[1]);
  if (!entry || !stream)
    return fail_call(env, Code::Closed, "recordStream: the storage or stream is gone");
  bool known = entry->owner == stream;
  for (Stream* each : entry->other_streams) known = known || each == stream;
  if (!known) entry->other_streams.push_back(stream);
  entry->recorded = true;
  return nullptr;
}

napi_value is_pinned(napi_env env, napi_callback_info info) {
  int64_t handle;
  if (!read_integers(env, info, 1, &handle)) return nullptr;
  StorageEntry* entry = state_of(env).storages.find(handle);
  if (!entry) return fail_call(env, Code::Closed, "isPinned: the storage was freed");
  napi_value result = nullptr;
  napi_get_boolean(env, entry->pinned, &result);
  return result;
}

// Returns an ArrayBuffer with four numbers for each storage of this environment: handle, bytes,
// device, and the origin of its memory: 0 the device's allocator, 1 an ArrayBuffer, 2 pinned
// memory.
napi_value live_storages(napi_env env, napi_callback_info) {
  StorageTable& storages = state_of(env).storages;
  size_t count = 0;
  storages.for_each([&](int64_t, StorageEntry&) { count++; });
  void* data = nullptr;
  napi_value buffer = nullptr;
  if (napi_create_arraybuffer(env, count * 4 * sizeof(double), &data, &buffer) != napi_ok)
    return nullptr;
  auto* at = static_cast<double*>(data);
  storages.for_each([&](int64_t handle, StorageEntry& entry) {
    *at++ = static_cast<double>(handle);
    *at++ = static_cast<double>(entry.bytes);
    *at++ = entry.device;
    *at++ = entry.adopted ? 1 : entry.pinned ? 2 : 0;
  });
  return buffer;
}

}  // namespace

Status allocate_storage(Environment& state, Stream& stream, int64_t bytes, int64_t* handle,
                        ErrorText* error, bool pinned) {
  StorageEntry* entry;
  *handle = state.storages.add(&entry);
  if (!*handle)
    return fail(error, Code::OutOfMemory, "more than %d tensors are alive",
                1 << StorageTable::kIndexBits);
  Status status = allocate_bytes(state, *entry, stream, bytes, pinned, error);
  if (!status.ok()) state.storages.remove(*handle);
  return status;
}

napi_value make_token(Environment& state, int64_t handle, StorageEntry& entry) {
  napi_value token = state.make_collectable(reinterpret_cast<void*>(handle), on_collected);
  if (!token) return nullptr;  // the storage is freed with its environment
  count_token(state, entry);
  return token;
}

napi_value share_token(Environment& state, int64_t handle, StorageEntry& entry) {
  SharedToken*& shared = state.shared_token;
  if (shared && shared->count < SharedToken::kMost) {
    shared->handles[shared->count++] = handle;
    count_token(state, entry);
    return nullptr;
  }
  auto* fresh = new SharedToken;
  fresh->handles[fresh->count++] = handle;
  napi_value token = state.make_collectable(fresh, on_shared_collected);
  if (!token) {
    delete fresh;
    return nullptr;
  }
  shared = fresh;
  count_token(state, entry);
  return token;
}

void export_memory(napi_env env, napi_value exports) {
  export_function<allocate>(env, exports, "allocate");
  export_function<allocate_pinned>(env, exports, "allocatePinned");
  export_function<adopt>(env, exports, "adopt");
  export_function<token>(env, exports, "makeToken");
  export_function<saved_token>(env, exports, "savedToken");
  export_function<set_saved>(env, exports, "setSaved");
  export_function<release>(env, exports, "release");
  export_function<release_many>(env, exports, "releaseMany");
  export_function<resize>(env, exports, "resize");
  export_function<record_stream>(env, exports, "recordStream");
  export_function<is_pinned>(env, exports, "isPinned");
  export_function<live_storages>(env, exports, "liveStorages");
}

}  // namespace shardwise
