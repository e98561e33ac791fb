// How many processors this process may use.
#pragma once

namespace shardwise::cpu {

// Those that its affinity allows (taskset, cpusets), and no more than what the quota of its control
// group pays for (docker --cpus).
int usable_processors();

}  // namespace shardwise::cpu
