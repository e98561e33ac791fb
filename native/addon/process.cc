// This process: the one that made it, and its locks of files.
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <climits>
#include <mutex>
#include <thread>

#include "environment.h"
#include "values.h"

namespace shardwise {

namespace {

constexpr useconds_t kLookUs = 250'000, kGraceUs = 2'000'000;

// The system's own signal at the parent's end (PR_SET_PDEATHSIG) comes at the end of the thread
// that started us, which may be a worker's.
void end_after(pid_t parent) {
  while (getppid() == parent) usleep(kLookUs);
  usleep(kGraceUs);  // a program that comes to its event loop hears of it there, and ends in order
  kill(getpid(), SIGKILL);
}

// endWithParent(): also in a loop that never comes back.
napi_value end_with_parent(napi_env, napi_callback_info) {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      std::thread(end_after, getppid()).detach();
    } catch (...) {  // no thread to be had: the event loop is left
    }
  });
  return nullptr;
}

// lockFile(fd): an exclusive lock, without waiting; 0 or the number of the system's error. It
// belongs to the open file, so it ends with the process, and other processes see it from any
// namespace or container.
napi_value lock_file(napi_env env, napi_callback_info info) {
  int64_t fd = 0;
  if (!read_integers(env, info, 1, &fd)) return nullptr;
  if (fd < 0 || fd > INT_MAX) return number_value(env, EBADF);
  int status = 0;
  do status = flock(static_cast<int>(fd), LOCK_EX | LOCK_NB);
  while (status != 0 && errno == EINTR);
  return number_value(env, status == 0 ? 0 : errno);
}

}  // namespace

void export_process(napi_env env, napi_value exports) {
  export_function<end_with_parent>(env, exports, "endWithParent");
  export_function<lock_file>(env, exports, "lockFile");
}

}  // namespace shardwise
