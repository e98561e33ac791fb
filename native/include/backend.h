// THE SEAM. A device backend fills this struct; the runtime (allocator, stream threads, addon) uses
// nothing else. All functions return a Status and write their message into `error`; none throws.
#pragma once
#include "collective.h"
#include "kernel_call.h"

namespace shardwise {

constexpr uint32_t kBackendAbi = 11;
constexpr int32_t kCommIdBytes = 128;

struct DeviceInfo {
  char name[128];
  char detail[256];  // instruction sets of a CPU; compute capability and driver of a GPU
  int64_t total_bytes;
  int64_t free_bytes;
  int32_t major, minor;
  int32_t num_cores;  // worker threads of a CPU; multiprocessors of a GPU
};

struct Failed {
  Status status;
  ErrorText text;
};
using OnComplete = void (*)(void* context, const Failed* failed);

// Scratch memory for the kernels of a stream. `give` returns at least `bytes`; it takes back what
// it gave before, for later launches. 0 bytes only takes back. Called on the stream's native
// thread, or on another one while nothing is launched.
struct ScratchSource {
  void* context = nullptr;
  Status (*give)(void* context, int64_t bytes, void** out, ErrorText* error) = nullptr;
};

enum class CopyKind : int32_t {
  HostToHost = 0,
  HostToDevice = 1,
  DeviceToHost = 2,
  DeviceToDevice = 3
};

// Tables of the fastest matmul configurations, measured on one model of device. A table is text
// with a line for each product, in a form that the backend defines. Device numbers are valid
// numbers of the backend.
struct Tuning {
  int32_t version;  // of the configurations; a table of another version is meaningless
  // replaces the table; "" removes it
  Status (*load)(int32_t device, const char* table, ErrorText* error);
  // writes the configurations worth measuring, one per line, and returns their number
  int32_t (*configurations)(int32_t device, const char* product, char* out, int32_t bytes);
  // the configuration of the last product on the device, and why it was chosen
  void (*last)(int32_t device, char* out, int32_t bytes);
};

struct Backend {
  uint32_t abi;
  const char* name;  // "cpu", "cuda"
  // true: launch() returns before the work is done, completion is seen through events
  bool asynchronous;
  int64_t alignment;  // of every block, in bytes
  int32_t num_kernels;
  const KernelEntry* kernels;  // indexed by kernel id, see generated/kernel_table.def

  int32_t (*device_count)();
  Status (*device_info)(int32_t device, DeviceInfo* info, ErrorText* error);

  // Segments for the caching allocator, and pinned host memory for staging. May be slow.
  Status (*allocate)(int32_t device, int64_t bytes, void** out, ErrorText* error);
  void (*release)(int32_t device, void* pointer, int64_t bytes);
  Status (*host_allocate)(int64_t bytes, void** out, ErrorText* error);
  void (*host_release)(void* pointer, int64_t bytes);

  // Streams and events are opaque. Calls on one stream come from one thread: that stream's native
  // thread.
  Status (*stream_create)(int32_t device, int32_t priority, const ScratchSource& scratch,
                          void** out, ErrorText* error);
  void (*stream_destroy)(void* stream);
  Status (*stream_query)(void* stream, bool* done, ErrorText* error);
  Status (*stream_synchronize)(void* stream, ErrorText* error);
  // Failures of the stream so far, without waiting; stream_synchronize still returns them. Null if
  // the backend cannot tell.
  Status (*stream_failure)(void* stream, ErrorText* error);
  // Calls `done` on a backend thread when all work launched so far has finished, with the failure
  // seen by then (or null), which stream_synchronize still returns. `done` must not block.
  Status (*stream_on_complete)(void* stream, OnComplete done, void* context, ErrorText* error);

  Status (*event_create)(int32_t device, bool timing, void** out, ErrorText* error);
  void (*event_destroy)(void* event);
  Status (*event_record)(void* event, void* stream, ErrorText* error);
  // the stream waits, not the caller
  Status (*event_wait)(void* event, void* stream, ErrorText* error);
  Status (*event_synchronize)(void* event, ErrorText* error);  // the caller waits
  Status (*event_query)(void* event, bool* done, ErrorText* error);
  Status (*event_elapsed_ms)(void* start, void* end, double* ms, ErrorText* error);

  // Paths and names of an optional library to try, one per line. Called before the first launch.
  void (*look_at)(const char* library, const char* candidates);

  // Works in stream order. `launch` runs kernels[call.kernel] or reports why it cannot.
  Status (*launch)(const KernelCall& call);
  // Runs the first few of these consecutive calls together where that is faster, and returns how
  // many; 0 if none. Never fails. Null if it makes no difference.
  int32_t (*launch_together)(const KernelCall* const* calls, int32_t count);
  Status (*copy)(void* stream, void* destination, const void* source, int64_t bytes, CopyKind kind,
                 ErrorText* error);

  // Collectives between memory of these devices; null if they have no engine of their own (the
  // CPU's is native/comm). comm_id: writes the id of a new group, up to kCommIdBytes, which one
  // rank creates and passes to all others. comm_create: waits for all ranks, on the native thread
  // of the group's stream; `max_ctas`: the most multiprocessors that a collective occupies, 0 for
  // the engine's choice. comm_split: creates groups from the ranks of another one; all of its ranks
  // call it, and those with color < 0 get no group. comm_prepare: called first if ranks share a
  // process, so that a launch never waits for the device of another rank.
  const CommEngine* comm;
  Status (*comm_prepare)(int32_t device, ErrorText* error);
  Status (*comm_id)(char* out, ErrorText* error);
  Status (*comm_create)(int32_t device, const char* id, int32_t rank, int32_t size,
                        int64_t timeout_ms, int32_t max_ctas, void** out, ErrorText* error);
  Status (*comm_split)(void* parent, int32_t color, int32_t rank, int64_t timeout_ms, void** out,
                       ErrorText* error);

  const Tuning* tuning;  // null if the backend has no configurations
};

}  // namespace shardwise

// cuda-backend.so exports this, and shardwise_can_fuse (fused_program.h).
extern "C" const shardwise::Backend* shardwise_backend_v1();
