// Formats calls for error messages.
#pragma once
#include "../../include/collective.h"
#include "../../include/text.h"
#include "nccl_api.h"

namespace shardwise::cuda::nccl {

CommRecord record_of(const CollectiveCall& call, int32_t rank, int32_t size);

// `all_reduce (call 7 of the group) of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const CommRecord& record);

// `: NCCL says "…" (its last error)`, and a remedy.
void describe_result(Text& text, const Api& api, Result result);

}  // namespace shardwise::cuda::nccl
