// Statistics of memory, and freed memory that goes back to the system.
#pragma once
#include "devices.h"

namespace shardwise {

// Called by JavaScript.
Napi::Value memory_stats(Environment& state, DeviceCode device);
void reset_peak_stats(DeviceCode device);
// Returns cached blocks that were not used for so long.
void empty_cache(Environment& state, DeviceCode device, int64_t idle_ms);
// Returns freed memory that the C heap keeps, mostly of ArrayBuffers.
void trim_heap();
// Lists segments with their blocks.
Napi::Value memory_snapshot(Environment& state, DeviceCode device);

}  // namespace shardwise
