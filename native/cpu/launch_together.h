// Element-wise commands that follow one another, run together.
#pragma once
#include "../include/kernel_call.h"

namespace shardwise::cpu {

// Runs as many of the calls, from the first on, as can run piece by piece: every thread takes a
// piece through all of them while it is in its cache, and there is one region instead of one for
// each. Returns how many; 0 if not even two can.
int32_t launch_together(const KernelCall* const* calls, int32_t count);

}  // namespace shardwise::cpu
