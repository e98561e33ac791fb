// Collectives of a device's memory without an engine of its own: through the host's. For ranks that
// share a GPU, and where NCCL is missing.
#pragma once
#include "../include/backend.h"

namespace shardwise::comm {

extern const CommEngine kStagedEngine;

// A member of kStagedEngine, over one of an engine of host memory, which it destroys.
void* staged_member(const CommEngine* host, void* member, int32_t rank, int32_t size,
                    const Backend* backend);

}  // namespace shardwise::comm
