// Store-then-load ordering between a fast thread and one that seldom needs it. The fast thread only
// stops the compiler; the slow one makes the kernel run a barrier on every thread of the process.
#pragma once
#include <atomic>
#include <mutex>

#include "../include/start_thread.h"
#include "../platform/platform.h"

namespace shardwise {

class AsymmetricFence {
 public:
  // Registers with the kernel on a thread of its own, because that takes ten milliseconds. Until
  // then, without a thread, and where the kernel has no such barrier, both sides run full ones.
  static void prepare() {
    static std::once_flag once;
    std::call_once(once, [] {
      start_detached([] {
        if (platform::prepare_fence_of_threads()) expedited_.store(true);
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
    if (expedited_.load()) platform::fence_all_threads();
  }

 private:
  static inline std::atomic<bool> expedited_{false};
};

}  // namespace shardwise
