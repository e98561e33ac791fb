// Runs consecutive element-wise commands together.
#pragma once
#include "../include/kernel_call.h"

namespace shardwise::cpu {

// Runs as many of the calls, from the first on, as can run chunk by chunk: every thread applies all
// of them to a chunk while it is in its cache, and there is one parallel region instead of one for
// each. Returns their number; 0 if not even two can.
int32_t launch_together(const KernelCall* const* calls, int32_t count);

}  // namespace shardwise::cpu
