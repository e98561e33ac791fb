// An engine of devices beside which the ranks' hosts compare what is called and look after each
// other: differences become errors, on one machine before they are launched, and what happens to
// one rank (abort, a timeout, the end of its process) reaches the others within a moment, also
// while their devices hang.
#pragma once
#include <memory>

#include "watchdog.h"

namespace shardwise::comm {

// Its members are made by watched_member.
extern const CommEngine kWatchedEngine;

// `member` is one of `engine`, and belongs to what is made.
void* watched_member(std::unique_ptr<CallWatch> group, const CommEngine* engine, void* member);

}  // namespace shardwise::comm
