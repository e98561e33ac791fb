#include "host_engine.h"

namespace shardwise::comm {

namespace {

// Converts counts of elements to bytes.
struct Bytes {
  int64_t of_rank[kMaxRanks];
  Bytes(const int64_t* counts, int32_t ranks, int64_t item) {
    for (int32_t rank = 0; rank < ranks; rank++) of_rank[rank] = counts[rank] * item;
  }
};

Status run(void* member, const CollectiveCall& call) {
  HostGroup& group = *static_cast<HostGroup*>(member);
  const CallSite site = site_of(call);
  const int64_t item = item_size(call.dtype), bytes = call.count * item;
  ErrorText* error = call.error;
  switch (call.kind) {
    case Collective::AllReduce:
      return group.all_reduce(call.in, call.out, call.count, call.dtype, call.reduce, site, error);
    case Collective::Reduce:
      return group.reduce(call.in, call.out, call.count, call.dtype, call.reduce, call.root, site,
                          error);
    case Collective::Broadcast:
      return group.broadcast(call.in, call.out, bytes, call.root, site, error);
    case Collective::ReduceScatter:
      return group.reduce_scatter(call.in, call.out, call.counts, call.dtype, call.reduce, site,
                                  error);
    case Collective::Barrier:
      return group.barrier(site, error);
    case Collective::Send:
      return group.send(call.in, bytes, call.root, site, error);
    case Collective::Receive:
      return group.receive(call.out, bytes, call.root, site, error);
    default:
      break;
  }
  const Bytes each(call.counts, group.size(), item);
  switch (call.kind) {
    case Collective::AllGather:
      return group.all_gather(call.in, call.out, each.of_rank, site, error);
    case Collective::Gather:
      return group.gather(call.in, call.out, each.of_rank, call.root, site, error);
    case Collective::Scatter:
      return group.scatter(call.in, call.out, each.of_rank, call.root, site, error);
    default: {
      const Bytes sent(call.send_counts, group.size(), item);
      return group.all_to_all(call.in, sent.of_rank, call.out, each.of_rank, site, error);
    }
  }
}

}  // namespace

const CommEngine kHostEngine = {
    "shm",
    run,
    [](void* member, const ErrorText& reason) { static_cast<HostGroup*>(member)->abort(reason); },
    // every call waits for its result and reports its own failure
    [](void*, ErrorText*) { return kOk; },
    [](void* member, int64_t milliseconds) {
      static_cast<HostGroup*>(member)->set_timeout(milliseconds);
    },
    [](void* member) { delete static_cast<HostGroup*>(member); },
    nullptr,
};

}  // namespace shardwise::comm
