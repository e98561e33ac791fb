// What Linux and macOS have in common.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "platform.h"

namespace shardwise::platform {

// ---- memory ----

namespace {

void* map_anonymous(int64_t bytes, int flags) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

void* map_memory(int64_t bytes) { return map_anonymous(bytes, 0); }
void* map_sparse_memory(int64_t bytes) { return map_anonymous(bytes, MAP_NORESERVE); }
void unmap_memory(void* memory, int64_t bytes) { munmap(memory, static_cast<size_t>(bytes)); }

// ---- processes ----

int32_t parent_process() { return getppid(); }

// Linux has a signal at the parent's end (PR_SET_PDEATHSIG), but it comes when the thread that
// started this process ends, which may be a worker.
void wait_for_end_of(int32_t parent) {
  constexpr useconds_t kPollUs = 250'000;
  while (getppid() == parent) usleep(kPollUs);
}

void end_this_process() { kill(getpid(), SIGKILL); }

namespace {

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kSignals = 5;
struct sigaction before_signals[kSignals] = {};
void (*record_signal)(int);

// Node turns bad accesses of WebAssembly into errors: a signal is fatal if the handler of before
// restores the default, or was none.
void on_signal(int signal, siginfo_t* info, void* context) {
  const int at =
      static_cast<int>(std::find(kFatalSignals, kFatalSignals + kSignals, signal) - kFatalSignals);
  const struct sigaction before = before_signals[at];
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
    struct sigaction now;
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_DFL) return;
    return record_signal(signal);
  }
  if (before.sa_handler == SIG_IGN) return;
  if (before.sa_handler != SIG_DFL) return before.sa_handler(signal);
  record_signal(signal);
  sigaction(signal, &before, nullptr);
  raise(signal);  // arrives when this handler returns
}

}  // namespace

void at_fatal_signal(void (*record)(int signal)) {
  record_signal = record;
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (int i = 0; i < kSignals; i++) sigaction(kFatalSignals[i], &action, &before_signals[i]);
}

// ---- libraries ----

void* open_library(const char* path, const char** reason) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) *reason = dlerror();
  return library;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

// ---- files ----

int lock_file(int fd) {
  int status = 0;
  do status = flock(fd, LOCK_EX | LOCK_NB);
  while (status != 0 && errno == EINTR);
  return status == 0 ? 0 : errno;
}

void make_folder(const char* path) { mkdir(path, 0700); }

int create_private_file(const char* folder, const char* name) {
  mkdir(folder, 0700);
  const int opened = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return -1;
  struct stat found;
  // another process of this program may have made it, but nobody else
  const bool is_own =
      fstat(opened, &found) == 0 && found.st_uid == geteuid() && (found.st_mode & 077) == 0;
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int file = is_own ? openat(opened, name, kNew, 0600) : -1;
  close(opened);
  return file;
}

// ---- memory with a name ----

namespace {

int fd_of(SharedFile file) { return static_cast<int>(file.handle); }

}  // namespace

void close_shared(SharedFile file) { close(fd_of(file)); }

bool is_same_shared(SharedFile a, SharedFile b) {
  struct stat first, second;
  return fstat(fd_of(a), &first) == 0 && fstat(fd_of(b), &second) == 0 &&
         first.st_ino == second.st_ino && first.st_dev == second.st_dev;
}

int64_t shared_bytes(SharedFile file) {
  struct stat found;
  return fstat(fd_of(file), &found) == 0 ? static_cast<int64_t>(found.st_size) : -1;
}

void* map_shared(SharedFile file, int64_t bytes) {
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_of(file), 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
void unmap_shared(void* memory, int64_t bytes) { munmap(memory, static_cast<size_t>(bytes)); }

bool lock_shared(SharedFile file) { return flock(fd_of(file), LOCK_EX | LOCK_NB) == 0; }
void unlock_shared(SharedFile file) { flock(fd_of(file), LOCK_UN); }

MemorySize shared_room() {
  struct statvfs room = {};
  if (statvfs(shared_folder(), &room) != 0) return {};
  const auto unit = static_cast<int64_t>(room.f_frsize);
  return {static_cast<int64_t>(room.f_blocks) * unit, static_cast<int64_t>(room.f_bavail) * unit};
}

}  // namespace shardwise::platform
