// Keeps freed memory for reuse. Each device has an allocator, each stream a pool: a block that was
// freed on a stream is reusable there at once, because commands of a stream run in order.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "../include/backend.h"
#include "spin_lock.h"

namespace shardwise {

struct Segment;

struct Block {
  char* data;
  int64_t bytes;
  Segment* segment;
  Block* previous = nullptr;  // neighbours in the segment, for merging
  Block* next = nullptr;
  Block* next_quick = nullptr;
  bool allocated = false;
  bool quick = false;
  bool scratch = false;
  std::chrono::steady_clock::time_point freed_at{};
  // Commands in flight may still use a free block: it is reusable on its stream at once, but its
  // memory returns to the system only when the stream has completed `sequence` commands.
  const std::atomic<uint64_t>* progress = nullptr;
  uint64_t sequence = 0;
  bool settled() const {
    return !progress || progress->load(std::memory_order_acquire) >= sequence;
  }
};

struct Segment {
  char* data;
  int64_t bytes;
  uint32_t pool;
  bool small;  // shared by blocks below 1 MiB
  Block* first;
};

struct MemoryStats {
  int64_t allocated = 0, reserved = 0, peak_allocated = 0, peak_reserved = 0;
  int64_t scratch = 0;  // of the reserved bytes: used by kernels within a call
  int64_t live_blocks = 0, allocations = 0, frees = 0, segments = 0, cached = 0, largest_free = 0,
          retries = 0;
};

class CachingAllocator {
 public:
  CachingAllocator(const Backend* backend, int32_t device) : backend_(backend), device_(device) {}

  // A pool belongs to one stream. Workers create and destroy streams; a closed pool serves the next
  // stream, and keeps no free host memory until then.
  uint32_t open_pool();
  void close_pool(uint32_t pool);  // its stream has completed everything

  Status allocate(int64_t bytes, uint32_t pool, Block** out, ErrorText* error);
  // `collected`: the garbage collector freed it; large CPU blocks then return to the system sooner.
  void free(Block* block, bool collected, const std::atomic<uint64_t>* progress = nullptr,
            uint64_t sequence = 0);
  // Scratch memory of a stream's kernels, from a pool that only the stream's native thread uses. It
  // belongs to no tensor, so it is not in `allocated`.
  Status allocate_scratch(int64_t bytes, uint32_t pool, Block** out, ErrorText* error);
  void free_scratch(Block* block);
  // free() for a thread of a backend, which must not wait: a thread inside this allocator may be
  // returning memory, which waits for the device. The next call takes the block in.
  void free_later(Block* block, const std::atomic<uint64_t>* progress, uint64_t sequence);
  // Returns free segments to the system that have been idle for at least this long.
  void empty_cache(int64_t idle_ms);

  // Called when the host is idle: keeps only a little of the free memory.
  void trim_idle_host();

  MemoryStats stats();
  // Allocated and reserved bytes.
  std::pair<int64_t, int64_t> in_use();
  void reset_peaks();

  struct BlockInfo {
    int64_t offset, bytes;
    // allocated, scratch, pending (free on its stream, in use by commands in flight), free
    const char* state;
  };
  struct SegmentInfo {
    const void* address;
    int64_t bytes;
    uint32_t stream;
    std::vector<BlockInfo> blocks;
  };
  std::vector<SegmentInfo> snapshot();

  const Backend* backend() const { return backend_; }

 private:
  static constexpr int64_t kSmall = 1 << 20;  // smaller blocks come from shared segments
  static constexpr int64_t kSmallSegment = 2 << 20;
  static constexpr int64_t kMiddleSegment = 20 << 20;  // for 1 to 10 MiB on a GPU
  static constexpr int64_t kQuickLimit = 64 << 10;     // sizes with an exact-size bin
  // cached bytes kept when the collector frees
  static constexpr int64_t kCollectedCache = 8 << 20;
  static constexpr int64_t kHostCacheFloor = 32 << 20;  // cached bytes a CPU may always keep

  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  struct Pool {
    std::set<Block*, BySize> small, large;
    std::array<Block*, kQuickLimit / 64 + 1> quick{};
  };

  struct LateBlock {
    Block* block;
    const std::atomic<uint64_t>* progress;
    uint64_t sequence;
  };

  int64_t round(int64_t bytes) const;
  // These require mutex_:
  Status take_out(int64_t bytes, Pool& pool, uint32_t id, Block** out, ErrorText* error);
  void put_back(Block* block);
  void take_in(Block* block, bool collected, const std::atomic<uint64_t>* progress,
               uint64_t sequence);
  void take_in_late();
  Block* take_cached(Pool& pool, int64_t bytes);
  Status grow(Pool& pool, int64_t bytes, uint32_t id, Block** out, ErrorText* error);
  void split(Pool& pool, Block* block, int64_t bytes);
  Block* merge(Pool& pool, Block* block);
  void flush_quick(Pool& pool);
  void release_segment(Segment* segment);
  void release_idle(std::chrono::steady_clock::time_point before);
  void release_idle(Pool& pool, std::chrono::steady_clock::time_point before);
  void trim_host(int64_t keep);
  std::set<Block*, BySize>& bin(Pool& pool, const Block* block) {
    return block->segment->small ? pool.small : pool.large;
  }

  const Backend* backend_;
  int32_t device_;
  SpinLock mutex_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<uint32_t> closed_;  // pools without a stream
  std::map<char*, std::unique_ptr<Segment>> segments_;
  MemoryStats stats_;
  SpinLock late_mutex_;  // never held while a backend is called
  std::atomic<bool> has_late_{false};
  std::vector<LateBlock> late_;
};

}  // namespace shardwise
