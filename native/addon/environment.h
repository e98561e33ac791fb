// State of one JavaScript environment (the main thread or a worker): its storages, streams and
// events, and completions from native threads. Devices and their allocators belong to the process.
#pragma once
#include <node_api.h>

#include <array>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../runtime/span_log.h"
#include "../runtime/storage_table.h"
#include "texts.h"
#include "values.h"

// Defined in cpu/backend.cc.
extern "C" const shardwise::Backend* shardwise_cpu_backend();

namespace shardwise {

constexpr int64_t kWordBytes = 2 << 20;

// Work to be finished on the JavaScript thread: a promise to settle, staging memory to copy out.
struct Completion {
  uint32_t stream = 0;
  uint64_t sequence = 0;  // of the command on the stream
  napi_ref callback = nullptr;
  napi_ref keep_alive = nullptr;  // the destination's ArrayBuffer
  void* staging = nullptr;
  void* destination = nullptr;
  int64_t bytes = 0;
  Code code = Code::Ok;
  ErrorText error;
  void fail(const Failed& failed) {
    code = failed.status.code;
    error = failed.text;
  }
};

// Native threads post completions here. The gate outlives the environment, which closes it when it
// ends.
struct Gate {
  std::mutex mutex;
  bool alive = true;
  bool scheduled = false;
  std::vector<Completion*> finished;
  napi_threadsafe_function function = nullptr;
  void open(napi_env env);
  void close();
  void post(Completion* completion);
};

// A token for a few small storages that were allocated in sequence: a token costs as much as a
// small kernel, and sharing keeps at most this much memory too long.
struct SharedToken {
  static constexpr int kMost = 4;
  static constexpr int64_t kMostBytes = 512;
  int64_t handles[kMost];
  int count = 0;
};

// A token of a runtime that defers finalizers: see Environment::make_collectable.
struct WeakToken {
  napi_ref reference;
  void* data;
  node_api_basic_finalize on_collected;
};

struct GlooEngine;
struct GlooWorld;
struct Member;
struct Plan;
namespace comm {
class Region;
}

struct Environment {
  explicit Environment(napi_env env);
  // Called when the environment ends. The object stays: the engine finalises tokens after this.
  void close();

  napi_env env;
  double* words = nullptr;
  napi_ref words_ref = nullptr;
  std::string why_no_cupti;          // of the profile that is open
  napi_ref profile_words = nullptr;  // keeps the words of profiles, which are always the same
  StorageTable storages;
  std::vector<std::unique_ptr<Stream>> streams;
  std::unordered_map<int32_t, uint32_t> default_streams;  // by device code
  // the asynchronous stream of the last command: it is marked when commands of another one follow
  Stream* active = nullptr;
  // streams that JavaScript destroyed; storages and blocks may still refer to them
  std::vector<Stream*> parked;
  std::unordered_map<uint32_t, std::shared_ptr<Event>> events;
  uint32_t next_event = 1;
  std::unordered_map<int64_t, std::shared_ptr<Member>> members;  // of process groups
  // of groups of ranks of this process
  std::unordered_map<int64_t, std::shared_ptr<comm::Region>> regions;
  // connections for groups across machines
  std::unordered_map<int64_t, std::shared_ptr<GlooWorld>> worlds;
  int64_t next_member = 1;
  TextTable texts;
  std::shared_ptr<Gate> gate;
  int64_t pinned_pool = -1;  // in the allocator of pinned memory; -1 before first use
  int pending_completions = 0;
  bool blocking = false;
  bool closed = false;
  CallFailure failure;
  std::unordered_map<int64_t, std::shared_ptr<Plan>> plans;
  int64_t next_plan = 1;
  // the present command; its memory is reused
  void* decoded = nullptr;

  // storages with a token that no graph saved, and those that one saved
  int64_t tokens = 0, token_bytes = 0;
  int64_t saved = 0, saved_bytes = 0;
  SharedToken* shared_token = nullptr;  // the last token, while JavaScript holds it
  int64_t external_delta = 0;           // to be reported to the engine
  // Whether finalizers wait for the event loop, as in Deno: a loop that does not wait for anything
  // would never free memory.
  bool defers_finalizers = false;
  std::vector<WeakToken> weak_tokens;
  // of ArrayBuffers whose storages were freed, perhaps in a garbage collection; deleted after it
  std::vector<napi_ref> dropped_refs;
  SpanLog log;

  Stream* stream(int64_t id);
  Stream* default_stream(int32_t device, ErrorText* error);
  Stream* open_stream(int32_t device, int32_t priority, ErrorText* error);
  // Ends the thread of a stream and keeps the stream for reuse_stream: sharing it only orders more
  // than needed.
  void park_stream(Stream& stream);
  Stream* reuse_stream(int32_t device, int32_t priority);
  // A JavaScript value; `on_collected(env, data, this)` is called once it is collected, or in the
  // next sweep after that. Null in a worker that is being stopped.
  napi_value make_collectable(void* data, node_api_basic_finalize on_collected);
  // Where finalizers are deferred, does their work for all tokens that were collected.
  void sweep_tokens();
  void release(int64_t handle, bool collected);
  // A token was collected: frees the storage if it was the last one.
  void drop_token(int64_t handle);
  // Sets whether an autograd graph needs the storage. One that needs it no more, without a token,
  // is freed: returns whether it was.
  bool set_saved(int64_t handle, bool saved, bool collected);
  // Counts a storage among the garbage that a collection may free, after a change of its owners.
  void account(StorageEntry& entry);
  // Frees the block in the order of its owner stream, once all streams that used it are done. Does
  // not wait.
  void release_block(const StorageEntry& entry, bool collected);
  // Orders `stream` after the last use of the storage, and records this use.
  void touch(StorageEntry& entry, Stream& stream);
  // Fails if the memory of an adopted ArrayBuffer was transferred. Defined in borrowed.cc.
  Status check_adopted(const StorageEntry& entry, ErrorText* error);
  // Records that a command of the stream writes to the storage, all or part of it.
  void write(StorageEntry& entry, Stream& stream, bool whole);
  // Waits for the device. Storages that failed or skipped commands should have written are marked
  // as having no value.
  Status synchronize(Stream& stream, ErrorText* error);
  // An unreported failure of another stream of a GPU, or of a process group.
  Status check_others(const Stream& read, ErrorText* error);
  // An unreported failure of a process group of this rank.
  Status check_groups(int64_t rank_runtime, ErrorText* error);
  // Adds a change of memory to the profile: bytes < 0 are freed.
  void remember(const StorageEntry& entry, int64_t bytes);
  void settle_accounts();  // reports external memory, deletes dropped references
  void expect_completion();
  // Reports a failure once to a rank, whichever of its streams meet it. Does not wait.
  void mark_reported(const Failure& failure, int64_t rank_runtime);

 private:
  void switch_to(Stream& stream);
  void lose_results(Stream& stream, const Failure& failure);
};

// The process's devices. Device code 0 is the CPU, 1 + n is cuda:n.
struct Devices {
  const Backend* cpu = shardwise_cpu_backend();
  std::atomic<const Backend*> cuda{nullptr};     // set once under the mutex, read by all threads
  std::atomic<const GlooEngine*> gloo{nullptr};  // likewise
  bool (*can_fuse)(int32_t device) = nullptr;    // of the CUDA backend, set before `cuda`
  static constexpr int32_t kMaxDevices = 65;
  std::mutex mutex;
  // created on first use, never destroyed
  std::array<std::atomic<CachingAllocator*>, kMaxDevices> allocators{};
  // the CPU backend, but with memory of cuda->host_allocate
  Backend pinned{};
  std::atomic<CachingAllocator*> pinned_kept{};

  static Devices& get();
  const Backend* backend(int32_t code) const { return code == 0 ? cpu : cuda.load(); }
  static int32_t index(int32_t code) { return code == 0 ? 0 : code - 1; }
  bool valid(int64_t code);
  CachingAllocator* allocator(int32_t code);
  CachingAllocator* pinned_allocator();  // created on first use; requires cuda
};

Environment& state_of(napi_env env);
// Returns freed memory of the C heap to the system.
void trim_c_heap();

void export_submit(Environment& state, napi_value exports);
void export_plans(Environment& state, napi_value exports);
void export_memory(napi_env env, napi_value exports);
void export_writes(napi_env env, napi_value exports);
void export_reads(napi_env env, napi_value exports);
void export_streams(napi_env env, napi_value exports);
void export_devices(napi_env env, napi_value exports);
void export_groups(napi_env env, napi_value exports);
void export_collectives(napi_env env, napi_value exports);
void export_device_groups(napi_env env, napi_value exports);
void export_gloo(napi_env env, napi_value exports);
void export_compilation(napi_env env, napi_value exports);
void export_process(napi_env env, napi_value exports);
void export_profile(napi_env env, napi_value exports);
// Fails calls that wait for other ranks; every member leaves.
void abort_all_groups(Environment& state, const char* reason);

// Fails if an earlier failure left the storage without a value.
Status check_value(const StorageEntry& entry, ErrorText* error);
// Null if the storage shares the token that was returned last.
napi_value share_token(Environment& state, int64_t handle, StorageEntry& entry);
napi_value make_token(Environment& state, int64_t handle, StorageEntry& entry);
Status allocate_storage(Environment& state, Stream& stream, int64_t bytes, int64_t* handle,
                        ErrorText* error, bool pinned = false);

}  // namespace shardwise
