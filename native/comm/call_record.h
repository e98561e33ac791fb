// A call as the ranks compare it and as errors show it, whatever carries it out.
#pragma once
#include "../include/collective.h"
#include "../include/text.h"
#include "layout.h"

namespace shardwise::comm {

// Shown in errors: what the program called ("all_reduce"), where ("train.ts:12:3"), and what the
// ranks must have in common beside that, with a line of advice, which is each rank's own. Copied;
// up to 39, 119, 263 and 231 bytes, null is "".
struct CallSite {
  const char* name;
  const char* where;
  const char* about = nullptr;
  int32_t dtype = -1;  // of what only moves, and is bytes to who moves it; -1: none
};
Site site_of(const CallSite& call);

Kind kind_of(Collective kind);

struct Call {
  Kind kind;
  int32_t root = -1, dtype = -1, reduce = -1;
  int64_t amount = 0;
  const int64_t* sizes = nullptr;  // per rank, then amount is their sum
  // bytes of each of the sizes' units, where these are elements and the amount counts bytes
  int64_t item = 1;
};

// Fails where the call is none: a root that is not there, a negative size. `number` counts the
// collectives of the group.
Status note_collective(const Call& call, const CallSite& site, int32_t size, uint64_t number,
                       Note* note, ErrorText* error);
Status note_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site, int32_t rank,
                    int32_t size, Note* note, ErrorText* error);

// Of a call at the seam, for those that take its parts.
CallSite site_of(const CollectiveCall& call);

// A call of a device's engine as the host's would note it: what only moves counts in bytes.
// `number` is that of the collective.
Note note_of(const CollectiveCall& call, int32_t size, uint64_t number);

}  // namespace shardwise::comm
