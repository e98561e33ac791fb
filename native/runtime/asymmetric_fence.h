// Store-then-load ordering between one thread that is always in a hurry and one that seldom asks: the first only tells the
// compiler, the second makes the kernel run a barrier on every thread of the process (membarrier(2)).
#pragma once
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace shardwise {

class AsymmetricFence {
 public:
  // For the hurried side: between its store and its load.
  static void light() {
    if (expedited()) std::atomic_signal_fence(std::memory_order_seq_cst);
    else std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  // For the other side: likewise. Some microseconds.
  static void heavy() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (expedited()) syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }

 private:
  static bool expedited() {
    static const bool registered = syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    return registered;
  }
};

}  // namespace shardwise
