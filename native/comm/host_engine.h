// The engine for ranks of one host that share memory.
#pragma once
#include <memory>

#include "../include/collective.h"
#include "host_group.h"

namespace shardwise::comm {

// Members are HostGroups.
extern const CommEngine kHostEngine;

}  // namespace shardwise::comm
