// Collectives on device memory through the engine of the host. For ranks that share a GPU, and
// where NCCL is missing.
#pragma once
#include "../include/backend.h"

namespace shardwise::comm {

extern const CommEngine kStagedEngine;

// Creates a member of kStagedEngine over a member of a host engine, and owns that one.
void* staged_member(const CommEngine* host, void* member, int32_t rank, int32_t size,
                    const Backend* backend);

}  // namespace shardwise::comm
