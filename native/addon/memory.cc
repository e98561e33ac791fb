#include "memory.h"

#include "../platform/platform.h"
#include "environment.h"

namespace shardwise {

namespace {

// Storages of a device with tokens, and their bytes.
struct TokenStats {
  int64_t count = 0, bytes = 0;
};

TokenStats token_stats(Environment& state, int32_t device) {
  // All storages are on the CPU.
  if (device == 0 && !Devices::get().cuda) return {state.tokens.count(), state.tokens.bytes()};
  TokenStats stats;
  state.storages.for_each([&](int64_t, StorageEntry& entry) {
    if (entry.device != device || (entry.tokens == 0 && !entry.saved)) return;
    stats.count++;
    stats.bytes += entry.bytes;
  });
  return stats;
}

}  // namespace

Napi::Value memory_stats(Environment& state, DeviceCode device) {
  const Napi::Env env = state.env;
  const MemoryStats stats = device.allocator()->stats();
  const TokenStats tokens = token_stats(state, device);
  const MemoryStats pinned = device == 0 && Devices::get().pinned_kept.load()
                                 ? Devices::get().pinned_allocator()->stats()
                                 : MemoryStats{};
  return object_of(env, {{"allocatedBytes", to_value(env, stats.allocated)},
                         {"reservedBytes", to_value(env, stats.reserved)},
                         {"peakAllocatedBytes", to_value(env, stats.peak_allocated)},
                         {"peakReservedBytes", to_value(env, stats.peak_reserved)},
                         {"liveBlocks", to_value(env, stats.live_blocks)},
                         {"allocations", to_value(env, stats.allocations)},
                         {"frees", to_value(env, stats.frees)},
                         {"segments", to_value(env, stats.segments)},
                         {"cachedBytes", to_value(env, stats.cached)},
                         {"largestFreeBlock", to_value(env, stats.largest_free)},
                         {"tokens", to_value(env, tokens.count)},
                         {"tokenBytes", to_value(env, tokens.bytes)},
                         {"outOfMemoryRetries", to_value(env, stats.retries)},
                         {"scratchBytes", to_value(env, stats.scratch)},
                         {"pinnedBytes", to_value(env, pinned.allocated)},
                         {"pinnedReservedBytes", to_value(env, pinned.reserved)}});
}

void reset_peak_stats(DeviceCode device) { device.allocator()->reset_peaks(); }

void empty_cache(Environment& state, DeviceCode device, int64_t idle_ms) {
  // Memory is not idle as long as its stream has a wait to come.
  for (const auto& stream : state.streams.all()) stream->flush_waits();
  device.allocator()->empty_cache(idle_ms);
  Devices& devices = Devices::get();
  if (device == 0 && devices.pinned_kept.load()) devices.pinned_allocator()->empty_cache(idle_ms);
}

void trim_heap() { platform::trim_heap(); }

Napi::Value memory_snapshot(Environment& state, DeviceCode device) {
  const Napi::Env env = state.env;
  const auto segments = device.allocator()->snapshot();
  return list_of(env, segments.size(), [&](size_t i) {
    const auto& segment = segments[i];
    const auto block_value = [&](size_t k) {
      const auto& block = segment.blocks[k];
      return object_of(env, {{"offset", to_value(env, block.offset)},
                             {"bytes", to_value(env, block.bytes)},
                             {"state", to_value(env, block.state)}});
    };
    const auto address = reinterpret_cast<uintptr_t>(segment.address);
    return object_of(env, {{"address", to_value(env, address)},
                           {"bytes", to_value(env, segment.bytes)},
                           {"stream", to_value(env, segment.stream)},
                           {"blocks", list_of(env, segment.blocks.size(), block_value)}});
  });
}

}  // namespace shardwise
