// The number of processors that this process may use.
#pragma once

namespace shardwise::cpu {

// The processors of its affinity (taskset, cpusets), limited by the quota of its control group
// (docker --cpus).
int usable_processors();

}  // namespace shardwise::cpu
