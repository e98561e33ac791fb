// Collectives of a device's memory without an engine of its own: through the host's. For ranks that share a GPU, and where NCCL is
// missing.
#pragma once
#include <memory>

#include "../include/backend.h"
#include "host_group.h"

namespace shardwise::comm {

extern const CommEngine kStagedEngine;

// A member of kStagedEngine.
void* staged_member(std::unique_ptr<HostGroup> group, const Backend* backend);

}  // namespace shardwise::comm
