#include "caching_allocator.h"

#include "reaper.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace shardwise {

using Clock = std::chrono::steady_clock;

namespace {

// Blocks are adjacent in mapped segments, where AddressSanitizer knows no borders: a sanitized
// build adds them.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kRedZone = 64;
void forbid(const Backend* backend, const char* data, int64_t bytes) {
  if (!backend->asynchronous) __asan_poison_memory_region(data, static_cast<size_t>(bytes));
}
void permit(const Backend* backend, const char* data, int64_t bytes) {
  if (!backend->asynchronous) __asan_unpoison_memory_region(data, static_cast<size_t>(bytes));
}
#else
constexpr int64_t kRedZone = 0;
void forbid(const Backend*, const char*, int64_t) {}
void permit(const Backend*, const char*, int64_t) {}
#endif

const char* state_of(const Block& block) {
  if (block.scratch) return "scratch";
  if (block.allocated) return "allocated";
  return block.settled() ? "free" : "pending";
}

Status fail_out_of_memory(ErrorText* error, const MemoryDetails& memory) {
  const Status status = fail(
      error, Code::OutOfMemory,
      "out of memory: %lld bytes were requested; allocated %lld, reserved %lld, free on the device "
      "%lld of %lld",
      static_cast<long long>(memory.requested), static_cast<long long>(memory.allocated),
      static_cast<long long>(memory.reserved), static_cast<long long>(memory.free),
      static_cast<long long>(memory.total));
  if (error == nullptr) return status;
  error->details.kind = DetailsKind::Memory;
  error->details.memory = memory;
  return status;
}

}  // namespace

int64_t CachingAllocator::round(int64_t bytes) const {
  const int64_t a = backend_->alignment;
  return bytes <= 0 ? a : (bytes + a - 1) / a * a;
}

uint32_t CachingAllocator::open_pool() {
  std::lock_guard<SpinLock> lock(mutex_);
  if (closed_.empty()) {
    pools_.push_back(std::make_unique<Pool>());
    return static_cast<uint32_t>(pools_.size() - 1);
  }
  const uint32_t reused = closed_.back();
  closed_.pop_back();
  return reused;
}

void CachingAllocator::close_pool(uint32_t pool) {
  std::lock_guard<SpinLock> lock(mutex_);
  take_in_late();
  for (auto& [data, segment] : segments_) {
    if (segment->pool != pool) continue;
    for (Block* block = segment->first; block; block = block->next) {
      block->progress = nullptr;
      // of a destroyed stream; the next one to use the pool counts from the start
      block->sequence = 0;
    }
  }
  closed_.push_back(pool);
  // Only the next stream of this pool could use its memory, and there may be none. On a GPU,
  // returning it waits for the device.
  if (backend_->asynchronous) return;
  flush_quick(*pools_[pool]);
  release_idle(*pools_[pool], Clock::time_point::max());
}

Status CachingAllocator::allocate(int64_t bytes, uint32_t pool, Block** out, ErrorText* error) {
  const int64_t wanted = round(bytes + kRedZone);
  std::lock_guard<SpinLock> lock(mutex_);
  take_in_late();
  Pool& from = *pools_[pool];
  Block* block = nullptr;
  if (wanted <= kQuickLimit && (block = from.quick[wanted / 64])) {
    from.quick[wanted / 64] = block->next_quick;
    block->quick = false;
  } else {
    const Status status = take_out(wanted, from, pool, &block, error);
    if (!status.ok()) return status;
  }
  if (block->settled()) forbid(backend_, block->data, block->bytes);
  permit(backend_, block->data, bytes);
  block->allocated = true;
  stats_.allocated += block->bytes;
  stats_.live_blocks++;
  stats_.allocations++;
  if (stats_.allocated > stats_.peak_allocated) stats_.peak_allocated = stats_.allocated;
  *out = block;
  return kOk;
}

Status CachingAllocator::take_out(int64_t bytes, Pool& from, uint32_t id, Block** out,
                                  ErrorText* error) {
  *out = take_cached(from, bytes);
  return *out ? kOk : grow(from, bytes, id, out, error);
}

Status CachingAllocator::allocate_scratch(int64_t bytes, uint32_t pool, Block** out,
                                          ErrorText* error) {
  std::lock_guard<SpinLock> lock(mutex_);
  take_in_late();
  const Status status = take_out(round(bytes), *pools_[pool], pool, out, error);
  if (!status.ok()) return status;
  (*out)->allocated = (*out)->scratch = true;
  stats_.scratch += (*out)->bytes;
  return kOk;
}

void CachingAllocator::free_scratch(Block* block) {
  std::lock_guard<SpinLock> lock(mutex_);
  stats_.scratch -= block->bytes;
  block->scratch = false;
  put_back(block);
}

// Best fit. A large block is only used if little of it would remain unused.
Block* CachingAllocator::take_cached(Pool& from, int64_t bytes) {
  Block key{nullptr, bytes, nullptr};
  for (int attempt = 0; attempt < 2; attempt++) {
    auto& candidates = bytes < kSmall ? from.small : from.large;
    auto found = candidates.lower_bound(&key);
    if (found != candidates.end()) {
      Block* block = *found;
      const bool fits =
          bytes < kSmall || backend_->asynchronous || block->bytes - bytes <= bytes / 8;
      if (fits) {
        candidates.erase(found);
        split(from, block, bytes);
        return block;
      }
    }
    if (attempt == 0 && bytes < kSmall)
      flush_quick(from);
    else
      break;
  }
  return nullptr;
}

Status CachingAllocator::grow(Pool& from, int64_t bytes, uint32_t id, Block** out,
                              ErrorText* error) {
  const int64_t granule = backend_->asynchronous ? int64_t{2} << 20 : int64_t{64} << 10;
  int64_t segment_bytes =
      bytes < kSmall ? kSmallSegment : (bytes + granule - 1) / granule * granule;
  if (backend_->asynchronous && bytes >= kSmall && bytes < (int64_t{10} << 20))
    segment_bytes = kMiddleSegment;
  void* data = nullptr;
  Status status = backend_->allocate(device_, segment_bytes, &data, error);
  if (!status.ok() && status.code != Code::Invalid) {
    // Returns all free memory to the system, then tries once more.
    stats_.retries++;
    for (auto& other : pools_) flush_quick(*other);
    release_idle(Clock::time_point::max());
    if (!backend_->asynchronous) Reaper::get().drain();
    status = backend_->allocate(device_, segment_bytes, &data, error);
  }
  if (status.code == Code::Invalid) return status;
  if (!status.ok()) {
    DeviceInfo info{};
    ErrorText ignored;
    const bool known = backend_->device_info(device_, &info, &ignored).ok();
    return fail_out_of_memory(error, {bytes, stats_.allocated, stats_.reserved,
                                      known ? info.free_bytes : 0, known ? info.total_bytes : 0});
  }
  auto segment = std::make_unique<Segment>(
      Segment{static_cast<char*>(data), segment_bytes, id, bytes < kSmall, nullptr});
  Block* block = new Block{segment->data, segment_bytes, segment.get()};
  segment->first = block;
  segments_[segment->data] = std::move(segment);
  stats_.reserved += segment_bytes;
  stats_.segments++;
  if (stats_.reserved > stats_.peak_reserved) stats_.peak_reserved = stats_.reserved;
  split(from, block, bytes);
  *out = block;
  return kOk;
}

void CachingAllocator::split(Pool& into, Block* block, int64_t bytes) {
  const int64_t rest = block->bytes - bytes;
  const int64_t least = block->segment->small ? backend_->alignment : kSmall;
  if (rest < least) return;
  Block* tail = new Block{block->data + bytes, rest, block->segment};
  tail->previous = block;
  tail->next = block->next;
  tail->freed_at = Clock::now();
  tail->progress = block->progress;
  tail->sequence = block->sequence;
  if (tail->next) tail->next->previous = tail;
  block->next = tail;
  block->bytes = bytes;
  bin(into, tail).insert(tail);
}

Block* CachingAllocator::merge(Pool& from, Block* block) {
  for (Block* neighbour : {block->previous, block->next}) {
    if (!neighbour || neighbour->allocated || neighbour->quick) continue;
    bin(from, neighbour).erase(neighbour);
    Block* left = neighbour == block->previous ? neighbour : block;
    Block* right = left == block ? neighbour : block;
    left->bytes += right->bytes;
    left->next = right->next;
    if (left->next) left->next->previous = left;
    left->freed_at = block->freed_at;
    left->sequence = left->sequence > right->sequence ? left->sequence : right->sequence;
    if (!left->progress) left->progress = right->progress;
    delete right;
    block = left;
  }
  return block;
}

void CachingAllocator::free(Block* block, bool collected, const std::atomic<uint64_t>* progress,
                            uint64_t sequence) {
  std::lock_guard<SpinLock> lock(mutex_);
  take_in(block, collected, progress, sequence);
}

void CachingAllocator::free_later(Block* block, const std::atomic<uint64_t>* progress,
                                  uint64_t sequence) {
  std::lock_guard<SpinLock> lock(late_mutex_);
  late_.push_back({block, progress, sequence});
  has_late_.store(true, std::memory_order_release);
}

void CachingAllocator::take_in_late() {
  if (!has_late_.load(std::memory_order_acquire)) return;
  std::vector<LateBlock> late;
  {
    std::lock_guard<SpinLock> lock(late_mutex_);
    late.swap(late_);
    has_late_.store(false, std::memory_order_relaxed);
  }
  for (const LateBlock& each : late) take_in(each.block, false, each.progress, each.sequence);
}

void CachingAllocator::take_in(Block* block, bool collected, const std::atomic<uint64_t>* progress,
                               uint64_t sequence) {
  block->progress = progress;
  block->sequence = sequence;
  if (block->settled()) forbid(backend_, block->data, block->bytes);
  stats_.allocated -= block->bytes;
  stats_.live_blocks--;
  stats_.frees++;
  if (block->bytes <= kQuickLimit) {
    Pool& to = *pools_[block->segment->pool];
    block->allocated = false;
    block->quick = true;
    block->next_quick = to.quick[block->bytes / 64];
    to.quick[block->bytes / 64] = block;
    return;
  }
  put_back(block);
  if (!backend_->asynchronous) {
    const int64_t floor =
        stats_.peak_allocated / 2 > kHostCacheFloor ? stats_.peak_allocated / 2 : kHostCacheFloor;
    trim_host(collected ? kCollectedCache : floor);
  }
}

void CachingAllocator::put_back(Block* block) {
  Pool& to = *pools_[block->segment->pool];
  block->allocated = false;
  block->freed_at = Clock::now();
  block = merge(to, block);
  bin(to, block).insert(block);
}

// Returns free host segments above the limit at once: users of a laptop see resident memory.
void CachingAllocator::trim_host(int64_t keep) {
  while (stats_.reserved - stats_.allocated > keep) {
    Block* victim = nullptr;
    for (auto& each : pools_) {
      for (auto it = each->large.rbegin(); it != each->large.rend() && !victim; ++it)
        if ((*it)->bytes == (*it)->segment->bytes && (*it)->settled()) victim = *it;
      if (victim) {
        each->large.erase(victim);
        break;
      }
    }
    if (!victim) return;
    release_segment(victim->segment);
  }
}

void CachingAllocator::flush_quick(Pool& from) {
  for (Block*& head : from.quick) {
    while (head) {
      Block* block = head;
      head = block->next_quick;
      block->quick = false;
      block->freed_at = Clock::now();
      block = merge(from, block);
      bin(from, block).insert(block);
    }
  }
}

void CachingAllocator::release_segment(Segment* segment) {
  permit(backend_, segment->data, segment->bytes);
  if (backend_->asynchronous)
    backend_->release(device_, segment->data, segment->bytes);
  else
    Reaper::get().add(backend_->release, device_, segment->data, segment->bytes);
  stats_.reserved -= segment->bytes;
  stats_.segments--;
  delete segment->first;
  segments_.erase(segment->data);
}

void CachingAllocator::release_idle(Clock::time_point before) {
  for (auto& each : pools_) release_idle(*each, before);
}

void CachingAllocator::release_idle(Pool& pool, Clock::time_point before) {
  for (auto* blocks : {&pool.small, &pool.large}) {
    for (auto it = blocks->begin(); it != blocks->end();) {
      Block* block = *it;
      if (block->bytes == block->segment->bytes && block->freed_at <= before && block->settled()) {
        it = blocks->erase(it);
        release_segment(block->segment);
      } else {
        ++it;
      }
    }
  }
}

void CachingAllocator::empty_cache(int64_t idle_ms) {
  std::lock_guard<SpinLock> lock(mutex_);
  take_in_late();
  for (auto& each : pools_) flush_quick(*each);
  release_idle(idle_ms <= 0 ? Clock::time_point::max()
                            : Clock::now() - std::chrono::milliseconds(idle_ms));
  if (!backend_->asynchronous) Reaper::get().drain();
}

void CachingAllocator::trim_idle_host() {
  std::lock_guard<SpinLock> lock(mutex_);
  take_in_late();
  trim_host(kCollectedCache);
}

MemoryStats CachingAllocator::stats() {
  std::lock_guard<SpinLock> lock(mutex_);
  take_in_late();
  MemoryStats out = stats_;
  out.cached = out.reserved - out.allocated - out.scratch;
  for (auto& each : pools_)
    for (auto* blocks : {&each->small, &each->large})
      if (!blocks->empty() && (*blocks->rbegin())->bytes > out.largest_free)
        out.largest_free = (*blocks->rbegin())->bytes;
  return out;
}

std::pair<int64_t, int64_t> CachingAllocator::in_use() {
  std::lock_guard<SpinLock> lock(mutex_);
  return {stats_.allocated, stats_.reserved};
}

void CachingAllocator::reset_peaks() {
  std::lock_guard<SpinLock> lock(mutex_);
  stats_.peak_allocated = stats_.allocated;
  stats_.peak_reserved = stats_.reserved;
}

std::vector<CachingAllocator::SegmentInfo> CachingAllocator::snapshot() {
  std::lock_guard<SpinLock> lock(mutex_);
  take_in_late();
  std::vector<SegmentInfo> out;
  for (auto& [data, segment] : segments_) {
    SegmentInfo info{segment->data, segment->bytes, segment->pool, {}};
    for (Block* b = segment->first; b; b = b->next)
      info.blocks.push_back({b->data - segment->data, b->bytes, state_of(*b)});
    out.push_back(std::move(info));
  }
  return out;
}

}  // namespace shardwise
