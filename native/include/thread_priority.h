// Threads that compute yield to the thread that runs JavaScript: if they fill all processors, the
// event loop would wait for a slice of the scheduler at each wakeup.
//
// From Linux 6.12 on a thread chooses its slice, and a waking thread preempts one with a longer
// slice. On older kernels the threads get a higher nice value, which reduces their share of a
// processor to a quarter beside other programs.
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
// The layout of the kernel, whose header cannot be included with that of the C library.
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

// Applies to the calling thread and the threads that it starts.
inline void yield_to_javascript() {
#if defined(__linux__)
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
#endif
}

}  // namespace shardwise
