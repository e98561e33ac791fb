// Collectives between GPUs through NCCL, opened at run time: the engine of a process group whose
// memory is CUDA's. What the functions do is said in include/backend.h and include/collective.h.
//
//   nccl_api       NCCL's binary interface, finding the library
//   nccl_create    ids, groups, groups of groups
//   nccl_run       one call of the program -> NCCL's calls
//   nccl_peers     all-reduces of up to some MiB through the memory of all ranks' GPUs, without NCCL
//   nccl_member    a rank's state: calls in flight, the first failure, the end
//   nccl_watch     the thread that looks at calls in flight
//   nccl_describe  calls in words
//
// A call is followed by CUDA events: a group whose oldest call is not done after the timeout has
// failed. NCCL's kernels are then told to end, and what they were to write is undefined: who reads
// results asks `failure` before.
#pragma once
#include "../../include/backend.h"

namespace shardwise::cuda::nccl {

// Paths and names to try, one a line, in order; before the first group. lib/native/libraries.ts
// knows where to look.
void look_at(const char* candidates);

// The path and version found, or one line per candidate with the reason why it was refused.
const char* report();

const CommEngine* engine();
Status comm_id(char* out, ErrorText* error);
Status comm_create(int32_t device, const char* id, int32_t rank, int32_t size, int64_t timeout_ms,
                   void** out, ErrorText* error);
Status comm_split(void* parent, int32_t color, int32_t rank, int64_t timeout_ms, void** out,
                  ErrorText* error);

// The last calls of a member, up to `most`, the latest last; how many. From any thread.
constexpr int32_t kRecentCalls = 32;
int32_t recent(void* member, CommRecord* out, int32_t most);

}  // namespace shardwise::cuda::nccl
