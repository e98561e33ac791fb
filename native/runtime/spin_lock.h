// A lock for rarely contended sections of some tens of nanoseconds; yields if one takes longer.
#pragma once
#include <atomic>
#include <thread>

namespace shardwise {

class SpinLock {
 public:
  void lock() {
    for (int tries = 0; taken_.exchange(true, std::memory_order_acquire); tries++)
      if (tries > 32) std::this_thread::yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace shardwise
