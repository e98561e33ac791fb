// Which process a rank lives in, and whether that one still runs.
#pragma once
#include <cstdint>

namespace shardwise::comm {

// A number alone may have been given to a later process, so the time of its start belongs to it.
struct ProcessId {
  int32_t pid;
  int32_t reserved;
  uint64_t start;          // in ticks since the machine's boot; 0: /proc does not tell
  uint64_t pid_namespace;  // numbers of another namespace mean other processes here
};

ProcessId this_process();

// False only when it is certain that the process has ended; a zombie has.
bool is_alive(const ProcessId& process);

}  // namespace shardwise::comm
