// Store-then-load ordering between one thread that is always in a hurry and one that seldom asks:
// the first only tells the compiler, the second makes the kernel run a barrier on every thread of
// the process (membarrier(2)).
#pragma once
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace shardwise {

class AsymmetricFence {
 public:
  // Registers with the kernel, which takes it ten milliseconds, on a thread of its own. Until then
  // both sides run whole barriers.
  static void prepare() {
    static std::once_flag once;
    std::call_once(once, [] {
      std::thread([] {
        if (syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
          expedited_.store(true);
      }).detach();
    });
  }

  // For the hurried side: between its store and its load. One that sees the flag comes after a
  // heavy side that did not see it.
  static void light() {
    if (expedited_.load())
      std::atomic_signal_fence(std::memory_order_seq_cst);
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  // For the other side: likewise. Some microseconds.
  static void heavy() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (expedited_.load()) syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }

 private:
  static inline std::atomic<bool> expedited_{false};
};

}  // namespace shardwise
