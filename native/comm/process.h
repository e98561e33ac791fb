// Identifies the process of a rank and tests whether it still runs.
#pragma once
#include <cstdint>

namespace shardwise::comm {

// A later process may get the same number, so the start time is part of the identity.
struct ProcessId {
  int32_t pid;
  int32_t reserved;
  uint64_t start;          // in ticks since the machine booted; 0 if /proc does not have it
  uint64_t pid_namespace;  // process numbers are only unique within a namespace
};

ProcessId this_process();

// False only if the process has certainly ended; a zombie has ended.
bool is_alive(const ProcessId& process);

}  // namespace shardwise::comm
