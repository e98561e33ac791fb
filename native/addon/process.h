// This process: its parent, and its file locks.
#pragma once
#include <cstdint>

namespace shardwise {

// Called by JavaScript. Ends this process when its parent ends, even in an endless loop.
void end_with_parent();
// Takes an exclusive lock without waiting; returns 0 or the error number of the system. The lock
// belongs to the open file, so it ends with the process, and other processes see it from any
// container on the machine.
int32_t lock_file(int64_t fd);

}  // namespace shardwise
