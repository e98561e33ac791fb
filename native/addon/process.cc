#include "process.h"

#include <cerrno>
#include <chrono>
#include <climits>
#include <mutex>
#include <thread>

#include "../include/start_thread.h"
#include "../platform/platform.h"

namespace shardwise {

void end_with_parent() {
  using namespace std::chrono_literals;
  static std::once_flag once;
  // without a thread only the event loop checks
  std::call_once(once, [] {
    start_detached([parent = platform::parent_process()] {
      platform::wait_for_end_of(parent);
      // A program that reaches its event loop notices there, and ends in order.
      std::this_thread::sleep_for(2s);
      platform::end_this_process();
    });
  });
}

int32_t lock_file(int64_t fd) {
  return fd < 0 || fd > INT_MAX ? EBADF : platform::lock_file(static_cast<int>(fd));
}

}  // namespace shardwise
