// Threads that compute for long give way to the one that runs JavaScript: with as many of them as processors, the event loop would
// otherwise wait for a slice of the scheduler whenever it has something to do.
#pragma once
#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace shardwise {

inline void give_way_to_javascript() {
#if defined(__linux__)
  constexpr int kNice = 5;  // of the calling thread alone, and never raised again
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
#endif
}

}  // namespace shardwise
