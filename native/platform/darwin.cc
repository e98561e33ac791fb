#include <fcntl.h>
#include <libproc.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <signal.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "platform.h"

// The waits of Apple's C++ library; os_sync_wait_on_address, with a header, needs macOS 14.4.
extern "C" int __ulock_wait(uint32_t operation, void* address, uint64_t value,
                            uint32_t microseconds);
extern "C" int __ulock_wake(uint32_t operation, void* address, uint64_t value);

namespace shardwise::platform {

// ---- memory ----

void use_large_pages(void*, int64_t) {}  // there are none for a part of a mapping

void trim_heap() { malloc_zone_pressure_relief(nullptr, 0); }

MemorySize physical_memory() {
  MemorySize found;
  uint64_t total = 0;
  size_t bytes = sizeof total;
  if (sysctlbyname("hw.memsize", &total, &bytes, nullptr, 0) != 0) return {};
  found.total = static_cast<int64_t>(total);
  vm_statistics64_data_t counts = {};
  mach_msg_type_number_t size = HOST_VM_INFO64_COUNT;
  vm_size_t page = 0;
  const host_t host = mach_host_self();
  if (host_page_size(host, &page) == KERN_SUCCESS &&
      host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&counts), &size) ==
          KERN_SUCCESS)
    found.free = (static_cast<int64_t>(counts.free_count) + counts.inactive_count) *
                 static_cast<int64_t>(page);
  return found;
}

int64_t resident_bytes() {
  mach_task_basic_info info = {};
  mach_msg_type_number_t size = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t status = task_info(mach_task_self(), MACH_TASK_BASIC_INFO,
                                         reinterpret_cast<task_info_t>(&info), &size);
  return status == KERN_SUCCESS ? static_cast<int64_t>(info.resident_size) : 0;
}

// ---- processors and threads ----

int allowed_processors() { return static_cast<int>(std::thread::hardware_concurrency()); }

void processor_name(char* name, size_t bytes) {
  char found[128];
  size_t length = sizeof found;
  if (sysctlbyname("machdep.cpu.brand_string", found, &length, nullptr, 0) == 0)
    snprintf(name, bytes, "%s", found);
}

void enlarge_stacks() {}  // 512 KiB: enough for every kernel

void yield_to_javascript() {}  // the scheduler raises threads that wake above those that compute

namespace {

constexpr uint32_t kCompareAndWait = 1, kCompareAndWaitShared = 3, kWakeAll = 0x100;

uint32_t wait_operation(bool shared) { return shared ? kCompareAndWaitShared : kCompareAndWait; }

}  // namespace

void sleep_while(std::atomic<uint32_t>& word, uint32_t seen, int64_t nanoseconds, bool shared) {
  const int64_t microseconds = std::clamp<int64_t>(nanoseconds / 1000, 1, 1'000'000'000);
  __ulock_wait(wait_operation(shared), &word, seen, static_cast<uint32_t>(microseconds));
}

void wake_sleepers(std::atomic<uint32_t>& word, bool shared) {
  __ulock_wake(wait_operation(shared) | kWakeAll, &word, 0);
}

bool prepare_fence_of_threads() { return false; }  // macOS has none

void fence_all_threads() {}

// ---- processes ----

namespace {

// False for a process that is no more, or is another user's.
bool describe(int32_t pid, proc_bsdinfo* found) {
  return proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, found, sizeof *found) == sizeof *found;
}

uint64_t start_of(const proc_bsdinfo& process) {
  return process.pbi_start_tvsec * 1'000'000 + process.pbi_start_tvusec;
}

}  // namespace

ProcessId this_process() {
  ProcessId id = {getpid(), 0, 0, 0};
  proc_bsdinfo found;
  if (describe(id.pid, &found)) id.start = start_of(found);
  return id;
}

bool is_alive(const ProcessId& process) {
  if (kill(process.pid, 0) != 0 && errno == ESRCH) return false;
  proc_bsdinfo found;
  if (process.start == 0 || !describe(process.pid, &found)) return true;
  return start_of(found) == process.start && found.pbi_status != SZOMB;
}

// ---- libraries ----

const char* path_of_library(void*, const char* name) { return name; }

// ---- memory with a name ----

// Files that are removed before they are written: shm_open takes only 31 letters, and its memory
// has no locks.
const char* shared_folder() { return "/tmp"; }

const char* const kMoreSharedMemory = "Remove files there";

namespace {

struct Path {
  explicit Path(const char* name) { snprintf(text, sizeof text, "%s%s", shared_folder(), name); }
  char text[256];
};

}  // namespace

SharedFile open_shared(const char* name, Open how) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (how == Open::New ? O_CREAT | O_EXCL : 0);
  return {open(Path(name).text, flags, 0600)};
}

int reserve_shared(SharedFile file, int64_t bytes) {
  const int fd = static_cast<int>(file.handle);
  fstore_t wanted = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, bytes, 0};
  if (fcntl(fd, F_PREALLOCATE, &wanted) == -1) return errno;
  return ftruncate(fd, bytes) == 0 ? 0 : errno;
}

void remove_shared(const char* name) { unlink(Path(name).text); }

}  // namespace shardwise::platform
