// Where the ranks of a world see which groups the others make: all make all of them, in one order,
// and nothing is sent for it.
#pragma once
#include "region.h"

namespace shardwise::comm {

// The `number`-th group of this rank of the world, made at `where`. Fails where another rank is
// seen to have made that one of other ranks; of two that differ, the later one sees it.
Status announce_group(Region& world, int32_t rank, uint64_t number, const Roster& group,
                      const char* where, ErrorText* error);

// Whether the rank has made the group of other ranks than `own` has; then how, in words that begin
// with "has".
bool has_made_other(Region& world, int32_t rank, int32_t own, const Roster& group, ErrorText* how);

}  // namespace shardwise::comm
