// Groups of ranks of one host at the seam of engines.
#pragma once
#include <memory>

#include "../include/collective.h"
#include "host_group.h"

namespace shardwise::comm {

// Its members are HostGroups.
extern const CommEngine kHostEngine;

}  // namespace shardwise::comm
