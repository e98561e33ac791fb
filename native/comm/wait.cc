#include "wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "../include/pause.h"

namespace shardwise::comm {
namespace {

constexpr int64_t kYieldAfterNs = 1000;

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout,
           bool shared) {
  return syscall(SYS_futex, &word, shared ? operation : operation | FUTEX_PRIVATE_FLAG, value,
                 timeout, nullptr, 0);
}

}  // namespace

void wake(Counter& counter, bool shared) {
  futex(counter.value, FUTEX_WAKE, INT_MAX, nullptr, shared);
}

void sleep_on(Counter& counter, uint32_t seen, int64_t nanoseconds, bool shared) {
  const timespec timeout = {static_cast<time_t>(nanoseconds / 1'000'000'000),
                            static_cast<long>(nanoseconds % 1'000'000'000)};
  counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (counter.value.load(std::memory_order_seq_cst) == seen)
    futex(counter.value, FUTEX_WAIT, seen, &timeout, shared);
  counter.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

bool spin_until(const Counter& counter, uint32_t target, const std::atomic<uint32_t>& stop,
                int64_t nanoseconds) {
  if (reached(counter.value.load(std::memory_order_acquire), target)) return true;
  if (nanoseconds <= 0) return false;
  const int64_t begin = now_ns();
  for (int64_t now = begin; stop.load(std::memory_order_relaxed) == 0 && now < begin + nanoseconds;
       now = now_ns()) {
    for (int i = 0; i < 16; i++) {
      if (reached(counter.value.load(std::memory_order_acquire), target)) return true;
      pause_briefly();
    }
    // The awaited thread may be queued behind this one on the same processor, where waking puts it
    // even if another processor is idle.
    if (now > begin + kYieldAfterNs) sched_yield();
  }
  return false;
}

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

int32_t processors() {
  cpu_set_t set;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                     : static_cast<int32_t>(online);
}

}  // namespace shardwise::comm
