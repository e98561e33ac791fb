// Several all-gathers or reduce-scatters in one call, each of equal counts and between memory of its
// own. NCCL launches them together; the other engines run them one after the other. A header of its
// own, because the kernels of backends include collective.h.
#pragma once
#include "collective.h"

namespace shardwise {

// One of them, for one rank.
struct CollectivePart {
  const void* in;
  void* out;
  int64_t count;  // elements of each rank
};

// `counts` are those of all parts together; `in` and `out` are null. `root`, which these kinds lack,
// is the number of parts and tells such a call from others, whose root is 0 or less.
struct PartsCall : CollectiveCall {
  const CollectivePart* parts;
};

constexpr bool takes_parts(Collective kind) {
  return kind == Collective::AllGather || kind == Collective::ReduceScatter;
}

// The number of parts; 0 for a call without them.
constexpr int32_t count_parts(const CollectiveCall& call) {
  return takes_parts(call.kind) && call.root > 0 ? call.root : 0;
}

inline const CollectivePart* parts_of(const CollectiveCall& call) {
  return static_cast<const PartsCall&>(call).parts;
}

// Calls run(call) for each part until one fails. `counts`: memory for a number for each rank.
template <class Run>
Status run_each_part(const CollectiveCall& call, int32_t size, int64_t* counts, Run run) {
  Status status = kOk;
  CollectiveCall each = call;
  each.root = 0;
  each.counts = counts;
  for (int32_t i = 0; i < count_parts(call) && status.ok(); i++) {
    const CollectivePart& part = parts_of(call)[i];
    each.in = part.in;
    each.out = part.out;
    for (int32_t r = 0; r < size; r++) counts[r] = part.count;
    status = run(each);
  }
  return status;
}

}  // namespace shardwise
