// What a call says of itself to the other ranks.
#pragma once
#include <cstddef>

#include "../include/collective.h"
#include "layout.h"

namespace shardwise::comm {

uint64_t hash(const void* data, size_t bytes);
// Cuts what is too long; null is "".
Site site_of(const char* name, const char* where);
// Of those that all ranks call: not of messages, where the root is the peer.
bool has_root(Kind kind);

// A call of a device's engine as the host's would note it: what only moves counts in bytes. `number` is that of the collective.
Note note_of(const CollectiveCall& call, int32_t rank, int32_t size, uint64_t number);

}  // namespace shardwise::comm
