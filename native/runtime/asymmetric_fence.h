// Store-then-load ordering between a fast thread and one that seldom needs it. The fast thread only
// stops the compiler; the slow one makes the kernel run a barrier on every thread of the process
// (membarrier(2)).
#pragma once
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "../include/start_thread.h"

namespace shardwise {

class AsymmetricFence {
 public:
  // Registers with the kernel on a thread of its own, because that takes ten milliseconds. Until
  // then, and where there is no thread, both sides run full barriers.
  static void prepare() {
    static std::once_flag once;
    std::call_once(once, [] {
      start_detached([] {
        if (syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
          expedited_.store(true);
      });
    });
  }

  // The fast side: between its store and its load. A thread that sees the flag comes after a heavy
  // side that did not see it.
  static void light() {
    if (expedited_.load())
      std::atomic_signal_fence(std::memory_order_seq_cst);
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  // The slow side: between its store and its load. Takes some microseconds.
  static void heavy() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (expedited_.load()) syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }

 private:
  static inline std::atomic<bool> expedited_{false};
};

}  // namespace shardwise
