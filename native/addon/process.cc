// This process and the one that made it.
#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "environment.h"

namespace shardwise {

namespace {

constexpr useconds_t kLookUs = 250'000, kGraceUs = 2'000'000;

// The system's own signal at the parent's end (PR_SET_PDEATHSIG) comes at the end of the thread that started us, which may be a worker's.
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

}  // namespace

void export_process(napi_env env, napi_value exports) { export_function(env, exports, "endWithParent", end_with_parent); }

}  // namespace shardwise
