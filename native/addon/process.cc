#include "process.h"

#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <climits>
#include <mutex>

#include "../include/start_thread.h"

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

}  // namespace

void end_with_parent() {
  static std::once_flag once;
  // without a thread only the event loop checks
  std::call_once(once, [] { start_detached([parent = getppid()] { end_after(parent); }); });
}

int32_t lock_file(int64_t fd) {
  if (fd < 0 || fd > INT_MAX) return EBADF;
  int status = 0;
  do status = flock(static_cast<int>(fd), LOCK_EX | LOCK_NB);
  while (status != 0 && errno == EINTR);
  return status == 0 ? 0 : errno;
}

}  // namespace shardwise
