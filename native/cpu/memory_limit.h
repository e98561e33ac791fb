// How much memory the CPU has as a device: that of the host, less where a control group (a container,
// a unit of systemd) limits this process to less.
#pragma once
#include "../include/status.h"
#include "../platform/platform.h"

namespace shardwise::cpu {

platform::MemorySize host_memory();

// Counts `bytes` as reserved, if as many are free.
Status reserve_memory(int64_t bytes, ErrorText* error);
void return_memory(int64_t bytes);

}  // namespace shardwise::cpu
