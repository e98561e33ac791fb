// A call as the ranks compare it and as errors show it, whatever carries it out.
#pragma once
#include "layout.h"
#include "text.h"

namespace shardwise::comm {

// Shown in errors: what the program called ("all_reduce") and where ("train.ts:12:3"). Copied; up to 39 and 119 bytes.
struct CallSite {
  const char* name;
  const char* where;
};

struct Call {
  Kind kind;
  int32_t root = -1, dtype = -1, reduce = -1;
  int64_t amount = 0;
  const int64_t* sizes = nullptr;  // per rank, then amount is their sum
};

// Fails where the call is none: a root that is not there, a negative size. `number` counts the collectives of the group.
Status note_collective(const Call& call, const CallSite& site, int32_t size, uint64_t number, Note* note, ErrorText* error);
Status note_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site, int32_t rank, int32_t size, Note* note,
                    ErrorText* error);

}  // namespace shardwise::comm
