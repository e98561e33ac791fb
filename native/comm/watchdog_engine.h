// Wraps a device's engine with a watchdog. Mismatches become errors, on one machine before the
// launch. An abort, a timeout or a dead process on one rank reaches all ranks within a moment, even
// if their devices hang.
#pragma once
#include <memory>

#include "watchdog.h"

namespace shardwise::comm {

// watchdog_member creates its members.
extern const CommEngine kWatchdogEngine;

// Wraps and owns `member` of `engine`.
void* watchdog_member(std::unique_ptr<Watchdog> group, const CommEngine* engine, void* member);

}  // namespace shardwise::comm
