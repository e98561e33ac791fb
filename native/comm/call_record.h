// The record of a call: ranks compare it, and errors show it. All engines use the same record.
#pragma once
#include "../include/collective.h"
#include "../include/text.h"
#include "layout.h"

namespace shardwise::comm {

// What errors show of a call: the name ("all_reduce"), the place ("train.ts:12:3"), what the ranks
// must have in common beside the call, and a line of advice, which may differ per rank. Copied, up
// to 39, 119, 263 and 231 bytes; null is "".
struct CallSite {
  const char* name;
  const char* where;
  const char* about = nullptr;
  int32_t dtype = -1;  // of data that is only moved; -1: unknown
};
Site site_of(const CallSite& call);

Kind kind_of(Collective kind);

struct Call {
  Kind kind;
  int32_t root = -1, dtype = -1, reduce = -1;
  int64_t amount = 0;
  const int64_t* sizes = nullptr;  // per rank; the amount is their sum
  // bytes per unit of `sizes` if they count elements and the amount counts bytes
  int64_t item = 1;
};

// Fails for an invalid call: a root that does not exist, a negative size. `number` counts the
// collectives of the group.
Status record_collective(const Call& call, const CallSite& site, int32_t size, uint64_t number,
                         CallRecord* record, ErrorText* error);
Status record_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site, int32_t rank,
                      int32_t size, CallRecord* record, ErrorText* error);

// The call site of a call at the seam.
CallSite site_of(const CollectiveCall& call);

// The record that the host's engine would write for a call of a device's engine: data that is only
// moved counts in bytes. `number` is the number of the collective.
CallRecord record_of(const CollectiveCall& call, int32_t size, uint64_t number);

}  // namespace shardwise::comm
