// Shared memory in which the ranks of a world publish the groups that they create. All ranks must
// create the same groups in the same order; a comparison here needs no message.
#pragma once
#include "region.h"

namespace shardwise::comm {

// Publishes the `number`-th group of this rank, created at `where`. Fails if another rank created
// its `number`-th group with other ranks; of two ranks that differ, the later one sees it.
Status publish_group(Region& world, int32_t rank, uint64_t number, const GroupInfo& group,
                     const char* where, ErrorText* error);

// Whether `rank` created the group with other ranks than `own` did. If so, `how` says it in a
// phrase that begins with "has".
bool created_differently(Region& world, int32_t rank, int32_t own, const GroupInfo& group,
                         ErrorText* how);

}  // namespace shardwise::comm
