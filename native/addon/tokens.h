// Tokens: values of JavaScript whose collection frees storages, or plans.
#pragma once
#include <vector>

#include "../runtime/storage_table.h"
#include "parameter.h"

namespace shardwise {

class Tokens {
 public:
  explicit Tokens(Environment& state) : state_(state) {}

  // A JavaScript value; `on_collected(env, data, the environment)` is called once it is collected,
  // or in the next sweep after that. Empty in a worker that is being stopped.
  Napi::Value make_collectable(void* data, node_api_basic_finalize on_collected);
  // Where finalizers are deferred, does their work for all tokens that were collected.
  void sweep();
  // Of a storage, which is freed with its last token.
  Napi::Value make(int64_t handle, StorageEntry& entry);
  // Empty if the storage shares the token that was returned last.
  Napi::Value share(int64_t handle, StorageEntry& entry);
  // The token that was returned last gets no more storages: JavaScript holds another one.
  void share_no_more() { shared_ = nullptr; }
  // Counts a storage among the garbage that a collection may free, after a change of its owners.
  void account(StorageEntry& entry);
  void resized(const StorageEntry& entry, int64_t bytes);
  void freed(StorageEntry& entry);
  // Reports external memory, and deletes references that a collection left.
  void settle() {
    if (external_delta_ > kReported || external_delta_ < -kReported) report();
    if (!dropped_.empty()) delete_dropped();
  }
  void close() { weak_.clear(); }
  // Storages with a token, and their bytes.
  int64_t count() const { return unsaved_ + saved_; }
  int64_t bytes() const { return unsaved_bytes_ + saved_bytes_; }

  // Called by JavaScript. Both return a token.
  Status of_storage(int64_t handle, Napi::Value* token, ErrorText* error);
  // Also marks the storage as saved, as long as the token lives.
  Status of_saved_storage(int64_t handle, Napi::Value* token, ErrorText* error);
  // Sets whether an autograd graph needs the storage. One that needs it no more, without a token,
  // is freed: returns whether it was.
  bool set_saved(int64_t handle, bool saved);
  // Writes to the shared words: the number of storages with tokens, their bytes, and the bytes of
  // those that graphs saved, which the first two leave out. On all devices.
  void write_counts();
  // From now on finalizers wait for the event loop, as in Deno: a loop that does not wait for
  // anything would never free memory.
  void defer_finalizers() { defers_finalizers_ = true; }

 private:
  // For a few small storages that were allocated in sequence: a token costs as much as a small
  // kernel, and sharing keeps at most this much memory too long.
  struct Shared {
    static constexpr int kMost = 4;
    int64_t handles[kMost];
    int count = 0;
  };
  // A token of a runtime that defers finalizers.
  struct Weak {
    napi_ref reference;
    void* data;
    node_api_basic_finalize on_collected;
  };
  static constexpr int64_t kReported = 1 << 20;

  static void on_collected(node_api_basic_env, void* data, void* hint);
  static void on_shared_collected(node_api_basic_env, void* data, void* hint);
  static void on_saved_collected(node_api_basic_env, void* data, void* hint);
  void count_token(StorageEntry& entry);
  void drop(int64_t handle);
  bool mark_saved(int64_t handle, bool saved, bool collected);
  void report();
  void delete_dropped();

  Environment& state_;
  // Storages with a token: those that no graph saved, and those that one saved.
  int64_t unsaved_ = 0, unsaved_bytes_ = 0;
  int64_t saved_ = 0, saved_bytes_ = 0;
  Shared* shared_ = nullptr;    // the last token, while JavaScript holds it
  int64_t external_delta_ = 0;  // to be reported to the engine
  bool defers_finalizers_ = false;
  std::vector<Weak> weak_;
  // of ArrayBuffers whose storages were freed, perhaps in a garbage collection; deleted after it
  std::vector<napi_ref> dropped_;
};

// Storages up to this size share a token.
constexpr int64_t kMostSharedBytes = 512;

}  // namespace shardwise
