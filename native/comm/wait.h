// Counters that ranks wait for: a few looks, then sleep in the kernel (futex), so that a rank that
// has the processor can go on.
#pragma once
#include <atomic>
#include <cstdint>

namespace shardwise::comm {

// A counter that only grows (and wraps), and how many sleep until it does.
struct Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

inline bool reached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

// `shared`: other processes sleep on it as well.
void wake(Counter& counter, bool shared);
inline void advance(Counter& counter, uint32_t value, bool shared) {
  counter.value.store(value, std::memory_order_seq_cst);
  // The sleeper counts itself before it looks at the value a last time, so one of the two sees the
  // other.
  if (counter.sleepers.load(std::memory_order_seq_cst) != 0) wake(counter, shared);
}

// Until somebody calls wake, or the value is another than `seen`, or the time is over. May return
// early.
void sleep_on(Counter& counter, uint32_t seen, int64_t nanoseconds, bool shared);

// Looks for up to `nanoseconds` without giving the processor away; also ends when `stop` is not 0.
bool spin_until(const Counter& counter, uint32_t target, const std::atomic<uint32_t>& stop,
                int64_t nanoseconds);

// More would overflow as nanoseconds; three years.
constexpr int64_t kLongestTimeoutMs = 100'000'000'000;

int64_t now_ns();
int32_t processors();  // that this process may use

}  // namespace shardwise::comm
