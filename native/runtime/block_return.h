// Memory that another stream than its owner used last, on its way back to the allocator.
#pragma once
#include <atomic>
#include <cstdint>

#include "caching_allocator.h"

namespace shardwise {

// Returns the block once, by whichever comes first: its owner has waited for the last use, so that
// its later commands may use the memory, or the device is done with all uses.
class BlockReturn {
 public:
  BlockReturn(Block* block, CachingAllocator* allocator, const std::atomic<uint64_t>* progress)
      : block_(block), allocator_(allocator), progress_(progress) {}

  bool returned() const { return returned_.load(std::memory_order_relaxed); }
  // On the JavaScript thread.
  void behind(uint64_t sequence) {
    if (!returned_.exchange(true)) allocator_->free(block_, false, progress_, sequence);
  }
  // On any thread, without waiting.
  void later(uint64_t sequence) {
    if (!returned_.exchange(true)) allocator_->free_later(block_, progress_, sequence);
  }

 private:
  Block* block_;
  CachingAllocator* allocator_;
  const std::atomic<uint64_t>* progress_;
  std::atomic<bool> returned_{false};
};

}  // namespace shardwise
