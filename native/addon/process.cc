// This process: its parent, and its file locks.
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

constexpr useconds_t kPollUs = 250'000, kGraceUs = 2'000'000;

// The system's signal at the parent's end (PR_SET_PDEATHSIG) comes when the thread that started
// this process ends, which may be a worker.
void end_after(pid_t parent) {
  while (getppid() == parent) usleep(kPollUs);
  usleep(kGraceUs);  // a program that reaches its event loop notices there, and ends in order
  kill(getpid(), SIGKILL);
}

// endWithParent(): works even in an endless loop.
napi_value end_with_parent(napi_env, napi_callback_info) {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      std::thread(end_after, getppid()).detach();
    } catch (...) {  // no thread available: only the event loop checks
    }
  });
  return nullptr;
}

// lockFile(fd): takes an exclusive lock without waiting; returns 0 or the error number of the
// system. The lock belongs to the open file, so it ends with the process, and other processes see
// it from any container on the machine.
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
