// Storages: their memory, and the order of the streams that use them.
#pragma once
#include "../runtime/storage_table.h"
#include "parameter.h"

namespace shardwise {

class Storages {
 public:
  explicit Storages(Environment& state) : state_(state) {}

  // Null for a storage that was freed, and at the end of the environment.
  StorageEntry* find(int64_t handle) { return table_.find(handle); }
  template <class Visit>
  void for_each(Visit visit) {
    table_.for_each(visit);
  }
  Status allocate(Stream& stream, int64_t bytes, int64_t* handle, ErrorText* error,
                  bool pinned = false);
  // `collected`: in a garbage collection.
  void free(StorageEntry& entry, int64_t handle, bool collected);
  // Orders `stream` after the last use of the storage, and records this use.
  void touch(StorageEntry& entry, Stream& stream);
  // Records that a command of the stream writes to the storage, all or part of it.
  void write(StorageEntry& entry, Stream& stream, bool whole) {
    entry.writer = &stream;
    entry.written = stream.submitted();
    if (whole) entry.no_value.reset();
  }
  // Marks what the stream should have written since it failed as having no value.
  void lose_results(Stream& stream, const Failure& failure);
  // Frees all memory at the end of the environment.
  void close();

  // Called by JavaScript. The first three write the handle to the shared words.
  Status allocate_with_token(int64_t stream, int64_t bytes, bool with_token, Napi::Value* token,
                             ErrorText* error);
  Status allocate_pinned(int64_t bytes, bool with_token, Napi::Value* token, ErrorText* error);
  // A storage that borrows the memory of an ArrayBuffer: borrowed.h.
  Status adopt(Napi::Value buffer, int64_t first_byte, int64_t bytes, bool with_token,
               Napi::Value* token, ErrorText* error);
  void release(int64_t handle);
  // The handles are in the shared words.
  Status release_many(int64_t count, ErrorText* error);
  // Frees the old block in stream order, so commands in flight may still use it.
  Status resize(int64_t handle, int64_t bytes, int64_t stream, ErrorText* error);
  Status record_stream(int64_t handle, int64_t stream, ErrorText* error);
  Status is_pinned(int64_t handle, bool* pinned, ErrorText* error);
  // Returns an ArrayBuffer with four numbers for each storage: handle, bytes, device, and the
  // origin of its memory: 0 the device's allocator, 1 an ArrayBuffer, 2 pinned memory.
  Napi::Value live();

 private:
  Status allocate_bytes(StorageEntry& entry, Stream& stream, int64_t bytes, bool pinned,
                        ErrorText* error);
  Status give(Stream& stream, int64_t bytes, bool with_token, bool pinned, Napi::Value* token,
              ErrorText* error);
  uint32_t pinned_pool();
  // Frees the block in the order of its owner stream, once all streams that used it are done. Does
  // not wait.
  void release_block(const StorageEntry& entry, bool collected);
  // Adds a change of memory to the profile: bytes < 0 are freed.
  void remember(const StorageEntry& entry, int64_t bytes);

  Environment& state_;
  StorageTable table_;
  int64_t pinned_pool_ = -1;  // in the allocator of pinned memory; -1 before first use
};

// Fails if an earlier failure left the storage without a value.
Status check_value(const StorageEntry& entry, ErrorText* error);

}  // namespace shardwise
