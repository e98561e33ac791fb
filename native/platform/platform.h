// What differs between systems. linux.cc, darwin.cc and windows.cc define it, and posix.cc what the
// first two have in common; no other file includes headers of a system.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shardwise::platform {

// ---- memory ----

// Pages of zeros; null if the system refuses them.
void* map_memory(int64_t bytes);
// The same for memory that will be used in part: the system sets none aside.
void* map_sparse_memory(int64_t bytes);
void unmap_memory(void* memory, int64_t bytes);
// Fewer page faults at the first write.
void use_large_pages(void* memory, int64_t bytes);
// Returns what free() keeps to the system.
void trim_heap();

struct MemorySize {
  int64_t total = 0, free = 0;  // 0: unknown
};
MemorySize physical_memory();
int64_t resident_bytes();  // of this process

// ---- processors and threads ----

// Processors that this process may run on.
int allowed_processors();
// Leaves the name as it is if it is unknown.
void processor_name(char* name, size_t bytes);

// Called before threads are started: some C libraries give them small stacks.
void enlarge_stacks();

// Threads that compute yield to the thread that runs JavaScript: if they fill all processors, the
// event loop would wait for a slice of the scheduler at each wakeup. Applies to the calling thread
// and the threads that it starts.
void yield_to_javascript();

// Returns when another thread wakes it, when the word is not `seen`, or when the time is over. May
// return early. `shared`: threads of other processes change the word.
void sleep_while(std::atomic<uint32_t>& word, uint32_t seen, int64_t nanoseconds, bool shared);
void wake_sleepers(std::atomic<uint32_t>& word, bool shared);

// Whether fence_all_threads works from now on; may take ten milliseconds.
bool prepare_fence_of_threads();
// Runs a barrier on every thread of this process.
void fence_all_threads();

// ---- processes ----

// A later process may get the same number, so the start time is part of the identity.
struct ProcessId {
  int32_t pid;
  int32_t reserved;
  uint64_t start;          // in a unit of the system; 0 if it is unknown
  uint64_t pid_namespace;  // process numbers are only unique within a namespace
};
ProcessId this_process();
// False only if the process has certainly ended; a zombie has ended.
bool is_alive(const ProcessId& process);

int32_t parent_process();
void wait_for_end_of(int32_t parent);
// Without running handlers.
void end_this_process();

// Calls `record` before a signal or an exception ends this process.
void at_fatal_signal(void (*record)(int signal));

// ---- libraries ----

// Null without success; `reason` then says why.
void* open_library(const char* path, const char** reason);
void* find_symbol(void* library, const char* name);
// The file that was opened for this name, valid until the next call of this thread.
const char* path_of_library(void* library, const char* name);

// ---- files ----

// Takes an exclusive lock of a file that Node opened, without waiting; returns 0 or the error
// number. The lock ends with the process, and other processes see it from any container.
int lock_file(int fd);

void make_folder(const char* path);
// Makes the folder, and in it a new file that nobody else can read. -1 if the folder is another
// user's or the file exists.
int create_private_file(const char* folder, const char* name);

// ---- memory with a name, which processes share ----

struct SharedFile {
  intptr_t handle = -1;
  bool ok() const { return handle != -1; }
};

// The folder of the names, and where the system has a limit, how it is raised.
const char* shared_folder();
extern const char* const kMoreSharedMemory;

enum class Open { Existing, New };
// Without success errno says why: EEXIST or ENOENT among others.
SharedFile open_shared(const char* name, Open how);
void close_shared(SharedFile file);
bool is_same_shared(SharedFile a, SharedFile b);
int64_t shared_bytes(SharedFile file);  // -1 if unknown
// Sets the size and allocates all of it; 0 or the error number.
int reserve_shared(SharedFile file, int64_t bytes);
void* map_shared(SharedFile file, int64_t bytes);  // null without success
void unmap_shared(void* memory, int64_t bytes);
// Among processes, without waiting.
bool lock_shared(SharedFile file);
void unlock_shared(SharedFile file);
void remove_shared(const char* name);
// Bytes of the file system that the folder has; zeros if unknown.
MemorySize shared_room();

}  // namespace shardwise::platform
