// Threads that compute for long give way to the one that runs JavaScript: with as many of them as
// processors, the event loop would otherwise wait for a slice of the scheduler whenever it has
// something to do.
//
// Linux from 6.12 on lets a thread choose its slice, and one that wakes up go before a thread with
// a longer slice; on others they are nicer, which costs beside other programs: their share of a
// processor is a quarter.
#pragma once
#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace shardwise {

#if defined(__linux__)
// As the kernel lays it out; its header cannot be included beside the C library's.
struct SchedulerAttributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns, deadline_ns, period_ns;
};

inline bool scheduled_by(SchedulerAttributes& own) {
  return syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) == 0;
}
#endif

// Of the calling thread, and of those that it starts.
inline void give_way_to_javascript() {
#if defined(__linux__)
  constexpr uint64_t kLongSliceNs = 8'000'000;  // that of others is 3 ms at most
  SchedulerAttributes own{};
  if (scheduled_by(own) && own.policy == SCHED_OTHER) {
    own.runtime_ns = kLongSliceNs;
    // Older kernels take it without a word, and keep none.
    if (syscall(SYS_sched_setattr, 0, &own, 0) == 0 && scheduled_by(own) &&
        own.runtime_ns == kLongSliceNs)
      return;
  }
  constexpr int kNice = 5;  // never raised again
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
#endif
}

}  // namespace shardwise
