// THE SEAM. A device backend fills this struct; the runtime (allocator, stream threads, addon) uses
// nothing else. All functions return a Status and write their message into `error`; none throws.
#pragma once
#include "collective.h"
#include "kernel_call.h"

namespace shardwise {

constexpr uint32_t kBackendAbi = 9;
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

// Where a stream's kernels get scratch memory from. `give` makes at least `bytes` of it; what it
// gave before is taken back, for use by what is launched later. 0 bytes: only takes back. From the
// stream's native thread, or from another while nothing is launched.
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

// Where matmul has several configurations for the same product: tables of which is fastest,
// measured on one model of device. A table is text, a line for each product; its form and its names
// are the backend's. Device numbers are the backend's and valid.
struct Tuning {
  int32_t version;  // of the configurations: a table made for another means nothing here
  // replaces; an empty one is none
  Status (*load)(int32_t device, const char* table, ErrorText* error);
  // worth measuring, one a line; how many
  int32_t (*configurations)(int32_t device, const char* product, char* out, int32_t bytes);
  // what computed the last product on the device, and why that
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
  // What has gone wrong on the stream so far, without waiting; it stays to be taken by
  // stream_synchronize. Null where nothing can.
  Status (*stream_failure)(void* stream, ErrorText* error);
  // Calls `done` from a backend thread once everything launched so far is finished, with the
  // failure that was seen by then (null if none), which stays to be taken by stream_synchronize.
  // `done` must not block.
  Status (*stream_on_complete)(void* stream, OnComplete done, void* context, ErrorText* error);

  Status (*event_create)(int32_t device, bool timing, void** out, ErrorText* error);
  void (*event_destroy)(void* event);
  Status (*event_record)(void* event, void* stream, ErrorText* error);
  // the stream waits, not the caller
  Status (*event_wait)(void* event, void* stream, ErrorText* error);
  Status (*event_synchronize)(void* event, ErrorText* error);  // the caller waits
  Status (*event_query)(void* event, bool* done, ErrorText* error);
  Status (*event_elapsed_ms)(void* start, void* end, double* ms, ErrorText* error);

  // Where an optional library may lie: paths and names to try, one a line. Before the first launch.
  void (*look_at)(const char* library, const char* candidates);

  // In stream order. `launch` runs kernels[call.kernel] or says why it cannot.
  Status (*launch)(const KernelCall& call);
  // Of calls that follow one another, runs as many from the first on as are faster together, and
  // returns how many: none fails. 0 where none are. Null where it makes no difference.
  int32_t (*launch_together)(const KernelCall* const* calls, int32_t count);
  Status (*copy)(void* stream, void* destination, const void* source, int64_t bytes, CopyKind kind,
                 ErrorText* error);

  // Collectives between memory of these devices; null where an engine of their own has to be made
  // for them (the CPU's, native/comm). comm_id: a new group's name, which one rank makes and all
  // others are told; up to kCommIdBytes. comm_create waits for all of them: on the native thread of
  // the group's stream. comm_split: a group of some of the ranks of another, called by all of that
  // one's; those with color < 0 get none. comm_prepare goes before the others where ranks share a
  // process: nothing that one of them launches afterwards waits for a device of another one.
  const CommEngine* comm;
  Status (*comm_prepare)(int32_t device, ErrorText* error);
  Status (*comm_id)(char* out, ErrorText* error);
  Status (*comm_create)(int32_t device, const char* id, int32_t rank, int32_t size,
                        int64_t timeout_ms, void** out, ErrorText* error);
  Status (*comm_split)(void* parent, int32_t color, int32_t rank, int64_t timeout_ms, void** out,
                       ErrorText* error);

  const Tuning* tuning;  // null where nothing is chosen
};

}  // namespace shardwise

// The one symbol that cuda-backend.so exports.
extern "C" const shardwise::Backend* shardwise_backend_v1();
