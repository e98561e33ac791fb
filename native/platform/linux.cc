#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "platform.h"

extern "C" int malloc_trim(size_t keep) __attribute__((weak));  // musl has none

namespace shardwise::platform {

// ---- memory ----

void use_large_pages(void* memory, int64_t bytes) {
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
}

void trim_heap() {
  if (malloc_trim) malloc_trim(0);
}

MemorySize physical_memory() {
  struct sysinfo memory;
  if (sysinfo(&memory) != 0) return {};
  const auto unit = static_cast<int64_t>(memory.mem_unit);
  return {static_cast<int64_t>(memory.totalram) * unit,
          static_cast<int64_t>(memory.freeram + memory.bufferram) * unit};
}

int64_t resident_bytes() {
  int64_t whole = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%" SCNd64 " %" SCNd64, &whole, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * sysconf(_SC_PAGESIZE);
}

// ---- processors and threads ----

int allowed_processors() {
  // Large machines need a larger set than cpu_set_t.
  for (int most = 1024; most <= 1 << 16; most *= 4) {
    cpu_set_t* set = CPU_ALLOC(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

void processor_name(char* name, size_t bytes) {
  FILE* file = std::fopen("/proc/cpuinfo", "r");
  if (!file) return;
  char line[256];
  while (std::fgets(line, sizeof line, file)) {
    const char* value = std::strstr(line, ": ");
    if (std::strncmp(line, "model name", 10) || !value) continue;
    snprintf(name, bytes, "%.*s", static_cast<int>(std::strcspn(value + 2, "\n")), value + 2);
    break;
  }
  std::fclose(file);
}

// musl gives a thread 128 KiB, and some kernels keep more on their stacks. It never lowers this.
void enlarge_stacks() {
#if !defined(__GLIBC__)
  constexpr size_t kStackBytes = 2 << 20;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
#endif
}

namespace {

// The layout of the kernel, whose header cannot be included with that of the C library.
struct SchedulerAttributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns, deadline_ns, period_ns;
};

bool scheduled_by(SchedulerAttributes& own) {
  return syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) == 0;
}

}  // namespace

// From Linux 6.12 on a thread chooses its slice, and a waking thread preempts one with a longer
// slice. On older kernels the threads get a higher nice value, which reduces their share of a
// processor to a quarter beside other programs.
void yield_to_javascript() {
  constexpr uint64_t kLongSliceNs = 8'000'000;  // other threads have at most 3 ms
  SchedulerAttributes own{};
  if (scheduled_by(own) && own.policy == SCHED_OTHER) {
    own.runtime_ns = kLongSliceNs;
    // Older kernels accept the value and ignore it.
    if (syscall(SYS_sched_setattr, 0, &own, 0) == 0 && scheduled_by(own) &&
        own.runtime_ns == kLongSliceNs)
      return;
  }
  constexpr int kNice = 5;  // cannot be lowered again
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

namespace {

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout,
           bool shared) {
  return syscall(SYS_futex, &word, shared ? operation : operation | FUTEX_PRIVATE_FLAG, value,
                 timeout, nullptr, 0);
}

}  // namespace

void sleep_while(std::atomic<uint32_t>& word, uint32_t seen, int64_t nanoseconds, bool shared) {
  const timespec timeout = {static_cast<time_t>(nanoseconds / 1'000'000'000),
                            static_cast<long>(nanoseconds % 1'000'000'000)};
  futex(word, FUTEX_WAIT, seen, &timeout, shared);
}

void wake_sleepers(std::atomic<uint32_t>& word, bool shared) {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr, shared);
}

bool prepare_fence_of_threads() {
  return syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void fence_all_threads() { syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }

// ---- processes ----

namespace {

uint64_t own_namespace() {
  struct stat found;
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

// State and start time, in ticks since the machine booted; false if /proc does not have them.
bool read_stat(int32_t pid, char* state, uint64_t* start) {
  char path[48], text[1024];
  // That of the first thread, because qemu makes up its own /proc/PID/stat.
  snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return false;
  text[length] = 0;
  const char* at = strrchr(text, ')');  // the name before it may hold blanks and parentheses
  if (at == nullptr || at[1] != ' ') return false;
  *state = at[2];
  // The state is field 3, the start field 22: each blank from here leads to the next field.
  for (int field = 2; field < 22; field++) {
    at = strchr(at + 1, ' ');
    if (at == nullptr) return false;
  }
  *start = strtoull(at, nullptr, 10);
  return true;
}

}  // namespace

ProcessId this_process() {
  ProcessId id = {getpid(), 0, 0, own_namespace()};
  char state;
  if (!read_stat(id.pid, &state, &id.start)) id.start = 0;
  return id;
}

bool is_alive(const ProcessId& process) {
  if (process.pid_namespace != own_namespace()) return true;
  if (kill(process.pid, 0) != 0 && errno == ESRCH) return false;
  char state;
  uint64_t start;
  if (process.start == 0 || !read_stat(process.pid, &state, &start)) return true;
  return start == process.start && state != 'Z' && state != 'X';
}

// ---- libraries ----

const char* path_of_library(void* library, const char* name) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : name;
}

// ---- memory with a name ----

const char* shared_folder() { return "/dev/shm"; }

const char* const kMoreSharedMemory =
    "Make it larger: a container by --shm-size=1g or --ipc=host, a pod by an emptyDir with medium "
    "Memory on /dev/shm, a host by mount -o remount,size=1G /dev/shm";

SharedFile open_shared(const char* name, Open how) {
  const int flags = O_RDWR | O_CLOEXEC | (how == Open::New ? O_CREAT | O_EXCL : 0);
  return {shm_open(name, flags, 0600)};
}

int reserve_shared(SharedFile file, int64_t bytes) {
  const int fd = static_cast<int>(file.handle);
  if (ftruncate(fd, bytes) != 0) return errno;
  int why = 0;
  do why = posix_fallocate(fd, 0, bytes);
  while (why == EINTR);
  return why;
}

void remove_shared(const char* name) { shm_unlink(name); }

}  // namespace shardwise::platform
