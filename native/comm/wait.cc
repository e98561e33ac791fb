#include "wait.h"

#include <chrono>
#include <thread>

#include "../include/pause.h"
#include "../platform/platform.h"

namespace shardwise::comm {
namespace {

constexpr int64_t kYieldAfterNs = 1000;

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace

void wake(Counter& counter, bool shared) { platform::wake_sleepers(counter.value, shared); }

void sleep_on(Counter& counter, uint32_t seen, int64_t nanoseconds, bool shared) {
  counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (counter.value.load(std::memory_order_seq_cst) == seen)
    platform::sleep_while(counter.value, seen, nanoseconds, shared);
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
    if (now > begin + kYieldAfterNs) std::this_thread::yield();
  }
  return false;
}

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace shardwise::comm
