// Collectives between GPUs through NCCL, opened at run time: the engine of process groups on CUDA
// memory. include/backend.h and include/collective.h describe the functions.
//
//   nccl_api       NCCL's binary interface, finding the library
//   nccl_create    ids, groups, groups split from groups
//   nccl_run       translates one collective call into NCCL calls
//   nccl_peers     all-reduces of up to some MiB through peer memory, without NCCL
//   nccl_member    the state of a rank: calls in flight, the first failure, the end
//   nccl_watch     the thread that polls the calls in flight
//   nccl_describe  formats calls for error messages
//
// CUDA events surround each call: a group has failed if its oldest call is incomplete after the
// timeout. NCCL's kernels are then aborted, and their outputs are undefined: readers of results
// check `failure` first.
#pragma once
#include "../../include/backend.h"

namespace shardwise::cuda::nccl {

// Sets the paths and names to try, one a line, in order; before the first group.
// lib/native/libraries.ts finds them.
void look_at(const char* candidates);

// The path and version found, or one line per candidate with the reason why it was refused.
const char* report();

const CommEngine* engine();
Status comm_id(char* out, ErrorText* error);
Status comm_create(int32_t device, const char* id, int32_t rank, int32_t size, int64_t timeout_ms,
                   int32_t max_ctas, void** out, ErrorText* error);
Status comm_split(void* parent, int32_t color, int32_t rank, int64_t timeout_ms, void** out,
                  ErrorText* error);

// Copies the last calls of a member, up to `most`, the latest last; returns their number. From any
// thread.
constexpr int32_t kRecentCalls = 32;
int32_t recent(void* member, CommRecord* out, int32_t most);

}  // namespace shardwise::cuda::nccl
