// Counters that ranks wait for: a rank spins briefly, then sleeps in the kernel so that the
// rank that has work gets the processor.
#pragma once
#include <atomic>
#include <cstdint>

namespace shardwise::comm {

// A counter that only grows (and wraps), and how many threads sleep until it grows.
struct Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

inline bool reached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

// `shared`: other processes sleep on it too.
void wake(Counter& counter, bool shared);
inline void advance(Counter& counter, uint32_t value, bool shared) {
  counter.value.store(value, std::memory_order_seq_cst);
  // A sleeper counts itself before its last check of the value, so either the sleeper or this
  // thread sees the other.
  if (counter.sleepers.load(std::memory_order_seq_cst) != 0) wake(counter, shared);
}

// Returns when another thread calls wake, when the value is not `seen`, or when the time is over.
// May return early.
void sleep_on(Counter& counter, uint32_t seen, int64_t nanoseconds, bool shared);

// Spins for up to `nanoseconds` without yielding the processor; also ends when `stop` is not 0.
bool spin_until(const Counter& counter, uint32_t target, const std::atomic<uint32_t>& stop,
                int64_t nanoseconds);

// Three years; more would overflow in nanoseconds.
constexpr int64_t kLongestTimeoutMs = 100'000'000'000;

int64_t now_ns();

}  // namespace shardwise::comm
